// The hosts of a plan, drawn from data: of many, those that are opened or found. Follows page.js.
{
  const data = JSON.parse(document.getElementById("data").textContent);
  const text = (number) => data.texts[number];
  const { make, plural } = page;
  const add = (parent, ...children) => { parent.append(...children); return parent; };
  const [NAME, CARD, GIST, ROWS] = [0, 1, 2, 3];
  const [TITLE, TOLD, FIX, SEE] = [0, 1, 2, 3];
  const SOME = 200;
  const MOST = 400;

  const draw = (number) => {
    const host = data.hosts[number];
    const card = data.cards[host[CARD]];
    const [state, letter, words] = card;
    const tag = make("span", `tag ${state}`, letter);
    tag.title = words;
    const details = make("details", `host ${state}`);
    details.dataset.host = number;
    details.addEventListener("toggle", () => { if (details.open && !details.querySelector("dl")) details.append(body(host, card)); });
    return add(details, add(make("summary"), tag, " ", make("span", "who", text(host[NAME])), " ", make("span", "soft", text(host[GIST]))));
  };

  const copied = (title, value, kind = "code") => add(make("p", "fix"), make("span", "soft", title), add(make("span", "copied"), make(kind, "", value), page.copyButton(value)));

  const body = (host, [, , , where, plan]) => {
    const list = make("dl", "rows");
    const row = (title, ...told) => add(list, add(make("div"), make("dt", "", title), add(make("dd"), ...told)));
    for (const one of data.rows[host[ROWS]]) {
      const told = [text(one[TOLD])];
      if (text(one[FIX])) told.push(copied("fix", text(one[FIX]), "span"));
      if (text(one[SEE])) told.push(copied("see", text(one[SEE])));
      row(text(one[TITLE]), ...told);
    }
    if (plan) {
      const link = make("a", "", where);
      link.href = `#plan-${plan}`;
      link.addEventListener("click", () => { document.getElementById(`plan-${plan}`).open = true; });
      row("plan", link);
    }
    return list;
  };

  // ---- blocks: one that is drawn at once, or many that are drawn when they are opened ------------------------------------------------
  const place = document.getElementById("list");
  const blocks = [];
  const fill = (block) => block.into.replaceChildren(...block.matching.map(draw));
  const many = data.hosts.length > MOST;
  for (let start = 0; start < data.hosts.length; start += many ? SOME : MOST) {
    const numbers = data.hosts.slice(start, start + (many ? SOME : MOST)).map((_, number) => start + number);
    const block = { numbers, matching: numbers, into: make("div"), outer: null };
    if (many) {
      const names = [numbers[0], numbers[numbers.length - 1]].map((number) => make("span", "who", text(data.hosts[number][NAME])));
      block.count = make("span", "soft");
      block.outer = add(make("details", "some"), add(make("summary"), names[0], " to ", names[1], " ", block.count), block.into);
      block.outer.addEventListener("toggle", () => { if (block.outer.open) fill(block); else block.into.replaceChildren(); });
    } else {
      fill(block);
    }
    place.append(block.outer || block.into);
    blocks.push(block);
  }

  // ---- search: of the rest of the page as on every page, and of all hosts ---------------------------------------------------------------
  let low = null;
  const told = (host) => [text(host[NAME]), text(host[GIST]), data.cards[host[CARD]][2], ...data.rows[host[ROWS]].flat().map(text)].join(" ").toLowerCase();
  page.search = (words) => {
    low = low || data.hosts.map(told);
    let found = 0;
    for (const block of blocks) {
      block.matching = words.length ? block.numbers.filter((number) => words.every((word) => low[number].includes(word))) : block.numbers;
      const before = found;
      found += block.matching.length;
      if (!block.outer) { fill(block); continue; }
      block.outer.hidden = block.matching.length === 0;
      block.count.textContent = words.length ? plural(block.matching.length, "host") : "";
      block.outer.open = words.length > 0 && block.matching.length > 0 && before < SOME;
      if (block.outer.open) fill(block); else block.into.replaceChildren();
    }
    return page.says(page.filter(words) + found, words);
  };
  page.first = () => place.querySelector(".host");
}
