"use strict";

const data = JSON.parse(document.getElementById("data").textContent);
const MIN_WEIGHT = 0.02; // of a line, or a cell, that is drawn
const STEP = 28; // height of a word in the drawing

const [form, lines, queries, links, keys, heat, said] = ["choices", "lines", "queries", "links", "keys", "heat", "said"].map(
  (id) => document.getElementById(id),
);
const boxes = [...form.querySelectorAll("input[name=head]")];
let pinned = null; // number of the word whose lines are kept
let pointed = null; // number of the word that is pointed at or has the focus

function element(parent, name, attributes, text = "") {
  const space = ["svg", "g", "line", "rect", "title"].includes(name) ? "2000/svg" : "1999/xhtml";
  const made = document.createElementNS(`http://www.w3.org/${space}`, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.textContent = text;
  parent.append(made);
  return made;
}

function writeWords() {
  pointed = null;
  const [rows, columns] = data.words[form.elements.kind.value];
  for (const [list, words, name] of [[queries, rows, "button"], [keys, columns, "span"]]) {
    list.replaceChildren();
    for (const text of words) element(element(list, "li", {}), name, { type: "button", dir: "auto" }, text);
  }
  links.setAttribute("viewBox", `0 0 100 ${STEP * Math.max(rows.length, columns.length)}`);
  links.style.height = `${1.75 * Math.max(rows.length, columns.length)}rem`;
}

function draw() {
  const [kind, layer, as] = ["kind", "layer", "as"].map((name) => form.elements[name].value);
  const [rows, columns] = data.words[kind];
  const word = pinned ?? pointed;
  const heads = boxes.filter((box) => box.checked).map((box) => Number(box.value));
  lines.hidden = as !== "lines";
  heat.hidden = as !== "heat";
  [...queries.children].forEach((item, number) => item.firstChild.setAttribute("aria-pressed", number === pinned));
  for (const drawing of [links, heat]) drawing.replaceChildren();
  for (const head of heads) {
    const parent = element(as === "lines" ? links : heat, as === "lines" ? "g" : "figure", {
      style: boxes[head].closest(".head").getAttribute("style"),
    });
    const area = { viewBox: `0 0 ${columns.length} ${rows.length}`, role: "img", "aria-label": `Heat map of head ${head + 1}` };
    const map = as === "heat" && element(parent, "svg", area);
    if (map) element(parent, "figcaption", {}, `head ${head + 1}`);
    data.weights[kind][layer][head].forEach((row, query) => {
      row.forEach((weight, key) => {
        const opacity = weight.toFixed(2);
        if (weight < MIN_WEIGHT) return;
        if (map) {
          const cell = element(map, "rect", { x: key, y: query, width: 1, height: 1, opacity });
          element(cell, "title", {}, `${rows[query]} → ${columns[key]} ${weight.toFixed(3)}`);
        } else if ([null, query].includes(word)) {
          element(parent, "line", { x1: 0, y1: (query + 0.5) * STEP, x2: 100, y2: (key + 0.5) * STEP, opacity });
        }
      });
    });
  }
  say(rows[word], columns, heads.map((head) => data.weights[kind][layer][head][word]));
}

function say(word, columns, ofHeads) {
  said.textContent = "Point at a word to see its lines alone.";
  if (word === undefined || !ofHeads.length) return;
  const mean = (key) => ofHeads.reduce((sum, row) => sum + row[key], 0) / ofHeads.length;
  const top = columns.map((text, key) => [mean(key), text]).sort((a, b) => b[0] - a[0]).slice(0, 4);
  const list = top.map(([weight, text]) => `${text} ${weight.toFixed(2)}`).join(", ");
  said.textContent = `${word} → ${list}${ofHeads.length > 1 ? " (mean of the heads)" : ""}`;
}

function numberAt(event) {
  const item = event.target.closest("#queries li");
  return item && [...queries.children].indexOf(item);
}

function change(pin, point) {
  const before = pinned ?? pointed;
  const isSame = pin === pinned && (pin ?? point) === before;
  [pinned, pointed] = [pin, point];
  if (!isSame) draw();
}

function show(view) {
  form.elements.kind.value = view.kind;
  form.elements.layer.value = view.layer - 1;
  for (const box of boxes) box.checked = view.head === null || Number(box.value) === view.head - 1;
  pinned = view.query === null ? null : view.query - 1;
  writeWords();
  draw();
}

for (const name of ["pointerover", "focusin"]) queries.addEventListener(name, (event) => change(pinned, numberAt(event)));
for (const name of ["pointerleave", "focusout"]) queries.addEventListener(name, () => change(pinned, null));
queries.addEventListener("click", (event) => {
  const number = numberAt(event);
  if (number !== null) change(number === pinned ? null : number, pointed);
});
document.addEventListener("keydown", (event) => event.key === "Escape" && change(null, pointed));
form.addEventListener("change", (event) => {
  if (event.target.name === "kind") {
    pinned = null;
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
