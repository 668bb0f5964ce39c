// The page of an acceptance: a cell of a map tells its figures, and arrows go from cell to cell. Follows page.js.
{
  const data = JSON.parse(document.getElementById("data").textContent);
  const { make } = page;
  const add = (parent, ...children) => { parent.append(...children); return parent; };

  const row = (list, name, value, copied) => {
    if (!value) return;
    const place = make("dd", copied ? "copied" : "");
    if (copied) add(place, make("code", "", value), page.copyButton(value));
    else place.textContent = value;
    add(list, add(make("div"), make("dt", "", name), place));
  };

  const tell = (cell) => {
    const map = cell.closest(".map");
    const told = map.querySelector(".cell-told");
    const [label, findings] = data.cells[Number(cell.dataset.cell)];
    const boxes = findings.map(([state, letter, found, wanted, see, fix]) => {
      const list = make("dl");
      row(list, "found", found);
      row(list, "wanted", wanted);
      row(list, "see", see, true);
      row(list, "fix", fix);
      return add(make("div", `check ${state}`), make("span", "own", letter), list);
    });
    told.replaceChildren(make("h3", "", label), ...boxes);
    told.hidden = false;
    for (const other of map.querySelectorAll(".open")) other.classList.remove("open");
    cell.classList.add("open");
  };

  const step = (cell, key) => {
    const table = cell.closest("table");
    const cells = [...cell.closest(".map").querySelectorAll("button.cell")];
    if (!table) return cells[cells.indexOf(cell) + (key === "ArrowRight" || key === "ArrowDown" ? 1 : -1)];
    const [across, down] = { ArrowRight: [1, 0], ArrowLeft: [-1, 0], ArrowDown: [0, 1], ArrowUp: [0, -1] }[key];
    let [at, line] = [cell.closest("td").cellIndex + across, cell.closest("tr").rowIndex + down];
    for (; table.rows[line] && table.rows[line].cells[at] && line > 0 && at > 0; at += across, line += down) {
      const next = table.rows[line].cells[at].querySelector("button.cell");
      if (next) return next;
    }
    return undefined;
  };

  for (const map of document.querySelectorAll(".map")) {
    const scroll = map.querySelector(".scroll");
    if (scroll) scroll.classList.toggle("upright", [...scroll.querySelectorAll("thead th span")].slice(1).some((name) => name.textContent.length > 8));
    map.addEventListener("click", (event) => {
      const cell = event.target.closest("button.cell");
      if (cell) tell(cell);
    });
    map.addEventListener("focusin", (event) => {
      if (!event.target.matches("button.cell")) return;
      for (const other of map.querySelectorAll("button.cell[tabindex='0']")) other.tabIndex = -1;
      event.target.tabIndex = 0;
    });
    map.addEventListener("keydown", (event) => {
      if (!event.target.matches("button.cell") || !event.key.startsWith("Arrow")) return;
      event.preventDefault();
      const next = step(event.target, event.key);
      if (next) next.focus();
    });
  }

  page.close = () => {
    const open = document.querySelector(".cell-told:not([hidden])");
    if (!open) return false;
    const cell = open.closest(".map").querySelector(".open");
    open.hidden = true;
    if (cell) { cell.classList.remove("open"); cell.focus(); }
    return true;
  };
}
