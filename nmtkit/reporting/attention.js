"use strict";

const data = JSON.parse(document.getElementById("data").textContent);
const MIN_WEIGHT = 0.02; // of a line that is drawn
const STEP = 28; // height of a word in the drawing

const [form, queries, links, keys, said] = ["choices", "queries", "links", "keys", "said"].map(
  (id) => document.getElementById(id),
);
const boxes = [...form.querySelectorAll("input[name=head]")];
let chosen = null; // number of the word whose lines are drawn alone

function element(parent, name, attributes, text = "") {
  const space = ["g", "line"].includes(name) ? "2000/svg" : "1999/xhtml";
  const made = document.createElementNS(`http://www.w3.org/${space}`, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.textContent = text;
  parent.append(made);
  return made;
}

function writeWords() {
  const [rows, columns] = data.words[form.elements.kind.value];
  for (const [list, words, name] of [[queries, rows, "button"], [keys, columns, "span"]]) {
    list.replaceChildren();
    for (const text of words) element(element(list, "li", {}), name, { type: "button", dir: "auto" }, text);
  }
  links.setAttribute("viewBox", `0 0 100 ${STEP * Math.max(rows.length, columns.length)}`);
  links.style.height = `${1.75 * Math.max(rows.length, columns.length)}rem`;
}

function draw() {
  const kind = form.elements.kind.value;
  const layer = data.weights[kind][form.elements.layer.value];
  const heads = boxes.filter((box) => box.checked);
  [...queries.children].forEach((item, number) => item.firstChild.setAttribute("aria-pressed", number === chosen));
  links.replaceChildren();
  for (const box of heads) {
    const group = element(links, "g", { style: box.closest(".head").getAttribute("style") });
    layer[box.value].forEach((row, query) => {
      row.forEach((weight, key) => {
        if (weight < MIN_WEIGHT || ![null, query].includes(chosen)) return;
        const ends = { x1: 0, y1: (query + 0.5) * STEP, x2: 100, y2: (key + 0.5) * STEP };
        element(group, "line", { ...ends, opacity: weight.toFixed(2) });
      });
    });
  }
  say(data.words[kind], heads.map((box) => layer[box.value][chosen]));
}

function say([rows, columns], ofHeads) {
  said.textContent = "Choose a word on the left to see its lines alone.";
  if (chosen === null || !ofHeads.length) return;
  const mean = (key) => ofHeads.reduce((sum, row) => sum + row[key], 0) / ofHeads.length;
  const top = columns.map((text, key) => [mean(key), text]).sort((a, b) => b[0] - a[0]).slice(0, 4);
  const list = top.map(([weight, text]) => `${text} ${weight.toFixed(2)}`).join(", ");
  said.textContent = `${rows[chosen]} → ${list}${ofHeads.length > 1 ? " (mean of the heads)" : ""}`;
}

function choose(number) {
  chosen = number;
  draw();
}

function show(view) {
  form.elements.kind.value = view.kind;
  form.elements.layer.value = view.layer - 1;
  for (const box of boxes) box.checked = view.head === null || Number(box.value) === view.head - 1;
  writeWords();
  choose(view.query === null ? null : view.query - 1);
}

queries.addEventListener("click", (event) => {
  const number = [...queries.children].indexOf(event.target.closest("li"));
  if (number >= 0) choose(number === chosen ? null : number);
});
document.addEventListener("keydown", (event) => event.key === "Escape" && choose(null));
form.addEventListener("change", (event) => {
  if (event.target.name === "kind") {
    chosen = null;
    writeWords();
  }
  draw();
});
document.getElementById("all").addEventListener("click", () => {
  const areAll = boxes.every((box) => box.checked);
  for (const box of boxes) box.checked = !areAll;
  draw();
});
for (const button of document.querySelectorAll("[data-finding]")) {
  button.addEventListener("click", () => {
    show(data.views[Number(button.dataset.finding)]);
    if (links.getBoundingClientRect().top > 0.7 * innerHeight) form.scrollIntoView(); // as on a phone
  });
}
show(data.views[0]);
