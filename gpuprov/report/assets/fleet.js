// The page of a fleet: squares by group, one host at a time, and the search over all of it. Follows page.js.
{
  const data = JSON.parse(document.getElementById("data").textContent);
  const text = (number) => data.texts[number];
  const byId = (id) => document.getElementById(id);
  const [NAME, GROUP, SET, STATE, BOOT, REASONS, PICTURES, RECEIPT, VERSIONS] = [0, 1, 2, 3, 4, 5, 6, 7, 8];
  const TITLES = { expected: 2, found: 3, see: 4, fix: 5, reboot: 6, version: 7, follows: 8, changes: 9 };
  const COLOURS = { unreachable: "gone", fail: "fail", error: "error", skip: "unproven", pass: "right", "n/a": "unproven" };
  const LETTERS = { unreachable: "U", fail: "F", error: "E", skip: "?", pass: "✓", "n/a": "–" };
  const LOUD = ["unreachable", "fail", "error"];
  const { make, plural } = page;
  const add = (parent, ...children) => { parent.append(...children); return parent; };

  // What a number of data.results stands for.
  const result = (number) => {
    const row = data.results[number];
    const check = data.checks[row[0]];
    const one = { status: data.statuses[row[1]], check: text(check[0]), capability: text(check[1]), fields: text(check[2]), moment: text(check[3]) };
    for (const [name, place] of Object.entries(TITLES)) one[name] = text(row[place]);
    return one;
  };

  // ---- squares -------------------------------------------------------------------------------------------------------------------
  const squares = [];
  const groups = new Map();
  data.hosts.forEach((host, number) => {
    if (!groups.has(host[GROUP])) groups.set(host[GROUP], []);
    groups.get(host[GROUP]).push(number);
  });

  // What a square of many has room for: without the domain where that tells hosts apart. Of a long name its end is shown.
  const shorts = data.hosts.map((host) => text(host[NAME]).split(".")[0]);
  const apart = new Set(shorts).size === shorts.length;
  const label = (number) => add(make("span"), make("bdi", "", apart ? shorts[number] : text(data.hosts[number][NAME])));

  const drawGrid = () => {
    const size = data.hosts.length <= 160 ? "big" : data.hosts.length <= 2000 ? "middle" : "small";
    const rows = make("div", `rows ${size}`);
    const titled = groups.size > 1 || (groups.size === 1 && text([...groups.keys()][0]));
    for (const [name, members] of groups) {
      const row = make("div", members.length > 128 ? "whole" : "");
      const bad = members.filter((number) => data.hosts[number][STATE] < 4).length;
      const told = bad ? `${bad} of ${members.length} differ` : plural(members.length, "host");
      if (titled) add(row, add(make("h3", "", text(name) || "no group"), make("span", "", told)));
      const field = make("div", "squares");
      for (const number of members) {
        const host = data.hosts[number];
        const [state, letter, words] = data.states[host[STATE]];
        const square = make("button", `square ${state}`, size === "big" || !["right", "part"].includes(state) ? letter : "");
        square.type = "button";
        square.tabIndex = squares.length === 0 ? 0 : -1;
        square.title = `${text(host[NAME])}: ${words}`;
        square.setAttribute("aria-label", square.title);
        square.dataset.host = number;
        if (size === "big") square.append(label(number));
        squares.push(square);
        field.append(square);
      }
      rows.append(add(row, field));
    }
    rows.addEventListener("click", (event) => {
      const square = event.target.closest(".square");
      if (square) openHost(Number(square.dataset.host), square);
    });
    rows.addEventListener("keydown", (event) => {
      const step = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: 1, ArrowUp: -1 }[event.key];
      const at = squares.indexOf(event.target);
      if (!step || at < 0) return;
      event.preventDefault();
      let next = at + step;
      if (event.key === "ArrowDown" || event.key === "ArrowUp") {
        const { top, left } = event.target.getBoundingClientRect();
        while (squares[next] && (squares[next].getBoundingClientRect().top === top || squares[next].getBoundingClientRect().left !== left)) next += step;
      }
      if (!squares[next]) return;
      event.target.tabIndex = -1;
      squares[next].tabIndex = 0;
      squares[next].focus();
    });
    byId("grid").append(rows);
  };

  // ---- which squares are bright: those of the chosen state that the search finds ---------------------------------------------------
  let chosen = -1;
  let matches = null;
  const light = () => {
    for (const square of squares) {
      const number = Number(square.dataset.host);
      const off = (chosen >= 0 && data.hosts[number][STATE] !== chosen) || (matches !== null && !matches.has(number));
      square.classList.toggle("dim", off);
    }
  };

  const drawLegend = () => {
    const counts = data.states.map(() => 0);
    for (const host of data.hosts) counts[host[STATE]] += 1;
    const legend = byId("legend");
    data.states.forEach(([state, letter, words], number) => {
      if (!counts[number]) return;
      const button = add(make("button"), make("span", `square ${state}`, letter), make("span", "", `${counts[number].toLocaleString("en")} ${counts[number] === 1 ? words : words.replace(/^matches /, "match ")}`));
      button.type = "button";
      button.setAttribute("aria-pressed", "false");
      button.addEventListener("click", () => {
        chosen = chosen === number ? -1 : number;
        for (const other of legend.children) other.setAttribute("aria-pressed", String(other === button && chosen >= 0));
        light();
      });
      legend.append(button);
    });
  };

  // ---- one host --------------------------------------------------------------------------------------------------------------------
  const panel = byId("host");
  const alone = data.hosts.length === 1;
  let from = null;

  const row = (list, name, value, copied) => {
    if (!value) return;
    const place = make("dd", copied ? "copied" : "");
    if (copied) add(place, make(copied === "code" ? "code" : "span", "", value), page.copyButton(value));
    else place.textContent = value;
    add(list, add(make("div"), make("dt", "", name), place));
  };

  const drawCheck = (one, followers) => {
    const list = make("dl");
    row(list, "found", one.found);
    row(list, "expected", one.expected);
    row(list, "fields", one.fields);
    row(list, "reboot", one.reboot);
    row(list, "see", one.evidence || one.see, "code");
    row(list, "fix", one.fix, "text");
    const box = add(make("div", `check ${COLOURS[one.status]}`), add(make("h3"), make("span", "own", `${LETTERS[one.status]} `), one.check), list);
    if (followers.length) box.append(table("", `and ${followers.length} that follow${followers.length === 1 ? "s" : ""}`, followers));
    return box;
  };

  const table = (name, told, rows, open = false) => {
    const body = make("tbody");
    for (const one of rows) {
      const what = [one.found, one.follows && `follows from ${one.follows}`].filter(Boolean).join(" · ");
      add(body, add(make("tr", COLOURS[one.status]), make("td", "letter", LETTERS[one.status]), make("td", "", one.check), make("td", "", what)));
    }
    const details = add(make("details"), add(make("summary"), make("span", "", name), make("span", "", told)), add(make("table"), body));
    details.open = open;
    return details;
  };

  const section = (title, ...children) => (children.length ? add(make("section"), make("h3", "", title), ...children) : "");

  // What the failing checks say that apply would change; what only a plan knows is not guessed.
  const drawChanges = (name, rows) => {
    const failing = rows.filter((one) => one.status === "fail");
    const list = make("dl");
    for (const capability of new Set(failing.map((one) => one.capability))) {
      const own = failing.filter((one) => one.capability === capability);
      const told = [...new Set(own.flatMap((one) => one.changes.split("\n")).filter(Boolean))];
      const runs = data.acting.includes(capability) && `its role runs: ${own.map((one) => one.check).join(", ")}`;
      row(list, capability, told.join("\n") || runs);
    }
    row(list, "reboot", [...new Set(failing.map((one) => one.reboot).filter(Boolean))].join("\n"));
    if (!list.children.length) return "";
    row(list, "all of it", `${data.plan} ${/^[\w.@%+=:,/-]+$/.test(name) ? name : `'${name.replaceAll("'", "'\\''")}'`}`, "code");
    return section("What apply would change, as far as these checks know", list);
  };

  const drawHost = (number) => {
    const host = data.hosts[number];
    const [state, letter, words] = data.states[host[STATE]];
    const rows = data.sets[host[SET]].map(result);
    const close = make("button", "close", "close");
    close.type = "button";
    close.addEventListener("click", () => closeHost());
    const wrong = rows.filter((one) => LOUD.includes(one.status) && !one.follows);
    const boot = { right: "right: a reboot leaves it as it is", wrong: "NOT right", unknown: "not known" }[text(host[BOOT])];
    const about = make("dl");
    row(about, "group", text(host[GROUP]));
    if (state !== "gone" && data.boots) row(about, "next boot", text(host[REASONS]) ? `${boot}: ${text(host[REASONS])}` : boot);
    const capabilities = new Map();
    for (const one of rows) capabilities.set(one.capability, [...(capabilities.get(one.capability) || []), one]);
    const folded = [...capabilities].map(([name, own]) => {
      const counts = data.statuses.map((status) => [status, own.filter((one) => one.status === status).length]).filter(([, count]) => count);
      return table(name, counts.map(([status, count]) => `${count} ${status}`).join(", "), own);
    });
    const versions = make("dl");
    for (const [name, value] of new Map(rows.filter((one) => one.version).map((one) => [one.capability, one.version]))) row(versions, name, value);
    for (const [name, value] of data.versions[host[VERSIONS]]) row(versions, text(name), text(value));
    const receipt = make("dl");
    for (const [name, value] of host[RECEIPT]) row(receipt, text(name), text(value));
    const pictures = host[PICTURES].map((one) => {
      const [title, svg] = data.pictures[one];
      const image = make("img");
      image.alt = text(title);
      image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(text(svg))}`;
      const figure = add(make("figure"), image);
      figure.tabIndex = 0; // it scrolls sideways
      return section(text(title), figure);
    });
    panel.replaceChildren(
      add(make("header"), add(make("span", `tag ${state}`, letter)), make("h2", "", text(host[NAME])), make("span", "soft", words), close),
      about,
      ...[section("Differs from the spec", ...wrong.map((one) => drawCheck(one, rows.filter((other) => other.follows === one.check))))],
      ...pictures,
      drawChanges(text(host[NAME]), rows),
      section("Versions", ...(versions.children.length ? [versions] : [])),
      section("Checks by capability", ...folded),
      section("Applied", ...(receipt.children.length ? [receipt] : [])),
    );
  };

  const openHost = (number, opener = null) => {
    drawHost(number);
    from = opener || from;
    for (const square of squares) square.classList.toggle("open", Number(square.dataset.host) === number);
    panel.hidden = false;
    panel.scrollTop = 0;
    if (alone) return;
    panel.focus({ preventScroll: true });
    history.replaceState(null, "", `#host=${encodeURIComponent(text(data.hosts[number][NAME]))}`);
  };

  const closeHost = () => {
    if (panel.hidden || alone) return false;
    panel.hidden = true;
    for (const square of squares) square.classList.remove("open");
    history.replaceState(null, "", location.pathname + location.search);
    if (from) from.focus();
    from = null;
    return true;
  };

  const openNamed = () => {
    const number = data.hosts.findIndex((host) => `#host=${encodeURIComponent(text(host[NAME]))}` === location.hash);
    if (number >= 0) openHost(number);
  };

  // ---- search: a host is found by its name, its group and each of its results ----------------------------------------------------
  const MOST = 12;
  let words = null;
  const low = () => {
    words = words || {
      results: data.results.map((found) => [...data.checks[found[0]].map(text), data.statuses[found[1]], ...found.slice(2).map(text)].join(" ").toLowerCase()),
      hosts: data.hosts.map((host) => `${text(host[NAME])} ${text(host[GROUP])} ${data.states[host[STATE]][2]}`.toLowerCase()),
    };
    return words;
  };

  const loud = (number) => LOUD.includes(data.statuses[data.results[number][1]]);
  const causeOf = (number) => `${data.statuses[data.results[number][1]]} ${text(data.checks[data.results[number][0]][0])}`;
  const causes = [...document.querySelectorAll(".cause")];
  const items = [...document.querySelectorAll("[data-item]")];
  let best = [];
  page.search = (given) => {
    const wanted = given.slice(0, 20);
    const found = byId("found");
    found.replaceChildren();
    found.hidden = !wanted.length;
    best = [];
    matches = null;
    for (const one of [...causes, ...items]) one.hidden = false;
    light();
    if (!wanted.length) return "";
    const all = 2 ** wanted.length - 1;
    const mask = (told) => wanted.reduce((sum, word, bit) => sum + (told.includes(word) ? 2 ** bit : 0), 0);
    const ofResult = low().results.map(mask);
    const ofHost = low().hosts.map(mask);
    matches = new Map();
    const failing = new Set();
    data.hosts.forEach((host, number) => {
      if (ofHost[number] === all) matches.set(number, -1);
      else {
        const hit = data.sets[host[SET]].find((one) => (ofResult[one] | ofHost[number]) === all && ofResult[one]);
        if (hit === undefined) return;
        matches.set(number, hit);
      }
      for (const one of data.sets[host[SET]]) {
        if (loud(one) && (ofHost[number] === all || (ofResult[one] | ofHost[number]) === all)) failing.add(causeOf(one));
      }
    });
    light();
    let shown = 0;
    let others = 0;
    for (const cause of causes) {
      cause.hidden = !failing.has(`${cause.dataset.status} ${cause.dataset.check}`) && mask(cause.textContent.toLowerCase()) !== all;
      if (!cause.hidden) shown += 1;
    }
    for (const item of items) {
      item.hidden = mask(`${item.dataset.words || ""} ${item.textContent}`.toLowerCase()) !== all;
      if (!item.hidden) others += 1;
    }
    const order = (number) => (matches.get(number) < 0 ? 0 : 10) + data.hosts[number][STATE];
    best = [...matches.keys()].sort((one, other) => order(one) - order(other) || one - other);
    for (const number of best.slice(0, MOST)) {
      const host = data.hosts[number];
      const [state, letter, told] = data.states[host[STATE]];
      const hit = matches.get(number) >= 0 ? result(matches.get(number)) : null;
      const button = add(make("button"), add(make("span"), make("span", `tag ${state}`, letter)), make("span", "", text(host[NAME])),
        make("span", "why soft", hit ? `${hit.check}: ${hit.found || hit.expected}` : told));
      button.type = "button";
      button.addEventListener("click", () => openHost(number, button));
      found.append(button);
    }
    if (best.length > MOST) found.append(make("p", "soft", `and ${plural(best.length - MOST, "more host")}, bright below`));
    if (!best.length && !shown && !others) return "nothing found";
    return `${plural(best.length, "host")}${shown ? `, ${plural(shown, "cause")}` : ""}${others ? `, ${plural(others, "entry", "entries")} above` : ""}${best.length ? "; Enter opens the first" : ""}`;
  };
  page.open = () => { if (best.length) openHost(best[0], byId("search")); };
  page.close = closeHost;
  byId("search").addEventListener("keydown", (event) => {
    const first = byId("found").querySelector("button");
    if (event.key === "ArrowDown" && first) { event.preventDefault(); first.focus(); }
  });
  byId("found").addEventListener("keydown", (event) => {
    const next = { ArrowDown: "nextElementSibling", ArrowUp: "previousElementSibling" }[event.key];
    if (!next) return;
    event.preventDefault();
    const target = event.target[next];
    if (target && target.matches("button")) target.focus();
    else if (event.key === "ArrowUp") byId("search").focus();
  });

  if (data.hosts.length) {
    byId("hosts").hidden = alone;
    panel.classList.toggle("alone", alone);
    drawLegend();
    drawGrid();
    if (alone) openHost(0);
    openNamed();
    addEventListener("hashchange", openNamed);
  }
}
