"use strict";

const data = JSON.parse(document.getElementById("data").textContent);
const MIN_WEIGHT = 0.02; // of a line, or a cell, that is drawn
const STEP = 28; // height of a word in the drawing

const [form, queries, keys, links, heat, said] = ["choices", "queries", "keys", "links", "heat", "said"].map(
  (id) => document.getElementById(id),
);
const boxes = [...form.querySelectorAll("input[name=head]")];
let pinned = null; // number of the word whose lines are kept
let pointed = null; // number of the word that is pointed at or has the focus

const words = () => data.words[form.elements.kind.value]; // those of queries, those of keys
const heads = () => boxes.filter((box) => box.checked).map((box) => Number(box.value));
const weights = (head) => data.weights[form.elements.kind.value][form.elements.layer.value][head];
const hue = (head) => boxes[head].closest(".head").getAttribute("style");
const word = () => pinned ?? pointed;

function element(parent, name, attributes, text) {
  const space = `http://www.w3.org/${["svg", "g", "line", "rect", "title"].includes(name) ? "2000/svg" : "1999/xhtml"}`;
  const made = document.createElementNS(space, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text !== undefined) made.textContent = text;
  parent.append(made);
  return made;
}

function writeWords() {
  queries.replaceChildren();
  keys.replaceChildren();
  for (const text of words()[0]) element(element(queries, "li", {}), "button", { type: "button", dir: "auto" }, text);
  for (const text of words()[1]) element(element(keys, "li", {}), "span", { dir: "auto" }, text);
}

function draw() {
  const asLines = form.elements.as.value === "lines";
  document.getElementById("lines").hidden = !asLines;
  heat.hidden = asLines;
  [...queries.children].forEach((item, number) => item.firstChild.setAttribute("aria-pressed", number === pinned));
  if (asLines) drawLines();
  else drawHeat();
  say();
}

function forEachWeight(head, use) {
  weights(head).forEach((row, query) => {
    row.forEach((weight, key) => weight >= MIN_WEIGHT && use(query, key, weight));
  });
}

function drawLines() {
  const n = Math.max(...words().map((side) => side.length));
  links.setAttribute("viewBox", `0 0 100 ${n * STEP}`);
  links.style.height = `${n * 1.75}rem`;
  links.replaceChildren();
  for (const head of heads()) {
    const group = element(links, "g", { style: hue(head) });
    forEachWeight(head, (query, key, weight) => {
      if (![null, query].includes(word())) return;
      const ends = { x1: 0, y1: (query + 0.5) * STEP, x2: 100, y2: (key + 0.5) * STEP };
      element(group, "line", { ...ends, opacity: weight.toFixed(2) });
    });
  }
}

function drawHeat() {
  heat.replaceChildren();
  const [rows, columns] = words();
  for (const head of heads()) {
    const figure = element(heat, "figure", { style: hue(head) });
    const drawing = { viewBox: `0 0 ${columns.length} ${rows.length}`, role: "img", "aria-label": `Heat map of head ${head + 1}` };
    const svg = element(figure, "svg", drawing);
    element(figure, "figcaption", {}, `head ${head + 1}`);
    forEachWeight(head, (query, key, weight) => {
      const cell = element(svg, "rect", { x: key, y: query, width: 1, height: 1, opacity: weight.toFixed(2) });
      element(cell, "title", {}, `${rows[query]} → ${columns[key]} ${weight.toFixed(3)}`);
    });
  }
}

function say() {
  const [rows, columns] = words();
  const shown = heads();
  if (!shown.length) {
    said.textContent = "No head is chosen.";
  } else if (word() === null) {
    const which = shown.length === boxes.length ? "all heads" : `head ${shown.map((head) => head + 1).join(", ")}`;
    said.textContent = `Layer ${Number(form.elements.layer.value) + 1}, ${which}. Point at a word to see its lines alone.`;
  } else {
    const mean = (key) => shown.reduce((sum, head) => sum + weights(head)[word()][key], 0) / shown.length;
    const top = columns.map((text, key) => [mean(key), text]).sort((a, b) => b[0] - a[0]).slice(0, 4);
    const list = top.map(([weight, text]) => `${text} ${weight.toFixed(2)}`).join(", ");
    said.textContent = `${rows[word()]} → ${list}${shown.length > 1 ? " (mean of the heads)" : ""}`;
  }
}

function point(event) {
  const item = event?.target.closest("#queries li");
  const number = item ? [...queries.children].indexOf(item) : null;
  if (number === pointed) return;
  pointed = number;
  if (pinned === null) draw();
}

function pin(number) {
  pinned = pinned === number ? null : number;
  draw();
}

function show(view) {
  form.elements.kind.value = view.kind;
  form.elements.layer.value = view.layer - 1;
  for (const box of boxes) box.checked = view.head === null || Number(box.value) === view.head - 1;
  pinned = view.query === null ? null : view.query - 1;
  pointed = null;
  writeWords();
  draw();
}

for (const name of ["pointerover", "focusin"]) queries.addEventListener(name, point);
for (const name of ["pointerleave", "focusout"]) queries.addEventListener(name, () => point(null));
queries.addEventListener("click", (event) => {
  const item = event.target.closest("li");
  if (item) pin([...queries.children].indexOf(item));
});
document.addEventListener("keydown", (event) => event.key === "Escape" && pinned !== null && pin(pinned));
form.addEventListener("change", (event) => {
  if (event.target.name === "kind") {
    pinned = pointed = null;
    writeWords();
  }
  draw();
});
for (const [id, checked] of [["all", true], ["none", false]]) {
  document.getElementById(id).addEventListener("click", () => {
    for (const box of boxes) box.checked = checked;
    draw();
  });
}
for (const button of document.querySelectorAll("[data-finding]")) {
  button.addEventListener("click", () => {
    show(data.views[Number(button.dataset.finding)]);
    if (links.getBoundingClientRect().top > 0.7 * innerHeight) form.scrollIntoView(); // as on a phone
  });
}
form.hidden = false;
show(data.views[0]);
