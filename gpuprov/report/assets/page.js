"use strict";
// Common to all pages: copy buttons, and one search with keys. Texts from hosts are only ever given to textContent.
//
// .copy        copies data-copy, or the text of the code or pre beside it
// [data-item]  is hidden while its text, with its data-words, lacks a word of the search; opened by Enter where it is a details
// page.filter  hides those that the words are not in: words => how many are left
// page.search  a page that draws its own items takes the search over: (words, text) => what #hits says
// page.first   and what Enter opens where none of the others is left: () => an element
// page.open    and what Enter opens: () => nothing
// page.close   what Esc closes before it clears the search: () => whether there was anything
const page = { search: null, open: null, first: null, close: null };

page.make = (name, className, text) => {
  const element = document.createElement(name);
  if (className) element.className = className;
  if (text !== undefined) element.textContent = text;
  return element;
};

page.copyButton = (text, label = "copy") => {
  const button = page.make("button", "copy", label);
  button.type = "button";
  button.dataset.copy = text;
  return button;
};

page.plural = (count, word, many = `${word}s`) => `${count.toLocaleString("en")} ${count === 1 ? word : many}`;

{
  const field = document.getElementById("search");
  const hits = document.getElementById("hits");
  const items = () => [...document.querySelectorAll("[data-item]")];
  const texts = new WeakMap();

  const wordsOf = (item) => {
    if (!texts.has(item)) texts.set(item, `${item.dataset.words || ""} ${item.textContent}`.toLowerCase());
    return texts.get(item);
  };

  page.filter = (words) => {
    let shown = 0;
    for (const item of items()) {
      item.hidden = !words.every((word) => wordsOf(item).includes(word));
      if (!item.hidden) shown += 1;
    }
    return shown;
  };
  page.says = (shown, words) => (words.length ? `${shown.toLocaleString("en")} found${shown ? ", Enter opens the first" : ""}` : "");

  const openFirst = () => {
    const first = items().find((item) => !item.hidden) || (page.first && page.first());
    if (!first) return;
    const details = first.tagName === "DETAILS" ? first : first.querySelector("details");
    if (details) details.open = true;
    first.scrollIntoView({ block: "start" });
    const target = details ? details.querySelector("summary") : first;
    if (!details) target.tabIndex = -1;
    target.focus({ preventScroll: true });
  };

  const search = () => {
    const text = field.value.trim().toLowerCase();
    const words = text ? text.split(/\s+/) : [];
    hits.textContent = page.search ? page.search(words, text) : page.says(page.filter(words), words);
  };

  let waiting = 0;
  if (field) {
    field.addEventListener("input", () => { clearTimeout(waiting); waiting = setTimeout(search, 60); });
    field.addEventListener("keydown", (event) => {
      if (event.key !== "Enter") return;
      event.preventDefault();
      clearTimeout(waiting);
      search();
      (page.open || openFirst)();
    });
  }

  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const typing = event.target instanceof Element && event.target.matches("input, textarea, select");
    if (event.key === "/" && !typing && field) {
      event.preventDefault();
      field.focus();
      field.select();
    } else if (event.key === "Escape" && !(page.close && page.close()) && field) {
      field.value = "";
      search();
      field.blur();
    }
  });

  const put = async (text) => {
    try {
      await navigator.clipboard.writeText(text);
      return true;
    } catch {
      // a page from a plain web server has no clipboard of its own
    }
    const area = page.make("textarea", "", text);
    area.readOnly = true;
    document.body.append(area);
    area.select();
    const done = document.execCommand("copy");
    area.remove();
    return done;
  };

  document.addEventListener("click", async (event) => {
    const button = event.target instanceof Element && event.target.closest(".copy");
    if (!button) return;
    event.preventDefault();
    const beside = button.parentElement.querySelector("code, pre");
    const label = button.dataset.label || button.textContent;
    button.dataset.label = label;
    const done = await put(button.dataset.copy !== undefined ? button.dataset.copy : beside ? beside.textContent : "");
    button.textContent = done ? "copied" : "select and copy by hand";
    setTimeout(() => { button.textContent = label; }, 1500);
  });
}
