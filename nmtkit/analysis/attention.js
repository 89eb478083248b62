// Attention weights, word by word. The page has them in its JSON: by kind of attention, the words
// of queries and keys, and per layer, head and query the weights of all keys in thousandths.
"use strict";

const DATA = JSON.parse(document.getElementById("attention-data").textContent);
const SVG = "http://www.w3.org/2000/svg";
const MIN_WEIGHT = 20; // thousandths; weaker lines are not drawn
const N_STRONGEST = 5;
const ROW = 26; // height of a word
const GAP = 260; // width of the lines, if there is space

const state = { ...DATA.start, heads: new Set(), pinned: null };
let pointed = null; // the word at the pointer: its side, "query" or "key", and its number

const linesBox = document.getElementById("lines");
const strongestBox = document.getElementById("strongest");

function element(name, attributes, ...children) {
  const created = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) created.setAttribute(key, value);
  created.append(...children);
  return created;
}

function svgElement(name, attributes) {
  const created = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) created.setAttribute(key, value);
  return created;
}

const kind = () => DATA.kinds[state.kind];
const heads = () => kind().layers[state.layer];
const colour = (head) => `hsl(${DATA.hues[head]}, 70%, 48%)`;

/** Show a view: `head` null stands for all heads, `query` null for all words. */
function setView({ kind, layer, head, query }) {
  state.kind = kind;
  state.layer = layer;
  state.heads = new Set(head === null ? DATA.hues.keys() : [head]);
  state.pinned = query === null ? null : { side: "query", number: query };
  pointed = null;
  drawControls();
  draw();
}

// Controls

function option(type, group, label, isChecked, change) {
  const input = element("input", { type, name: group });
  input.checked = isChecked;
  input.addEventListener("change", () => change(input.checked));
  return element("label", {}, input, label);
}

function button(label, click) {
  const created = element("button", { type: "button" }, label);
  created.addEventListener("click", click);
  return created;
}

function fieldset(title, ...options) {
  return element("fieldset", {}, element("legend", {}, title), ...options);
}

function drawControls() {
  const kinds = Object.entries(DATA.kinds).map(([key, { name }]) =>
    option("radio", "kind", name, key === state.kind, () => {
      state.kind = key;
      state.pinned = null; // the other kind has other words
      draw();
    }),
  );
  const layers = kind().layers.map((_, layer) =>
    option("radio", "layer", `${layer + 1}`, layer === state.layer, () => {
      state.layer = layer;
      draw();
    }),
  );
  const choices = DATA.hues.map((_, head) => {
    const swatch = element("i", { class: "swatch" });
    swatch.style.background = colour(head);
    const label = option("checkbox", "head", `${head + 1}`, state.heads.has(head), (isChecked) => {
      if (isChecked) state.heads.add(head);
      else state.heads.delete(head);
      draw();
    });
    label.append(swatch);
    return label;
  });
  const setAll = (all) => {
    state.heads = new Set(all ? DATA.hues.keys() : []);
    drawControls();
    draw();
  };
  const found = DATA.found.map((finding) => button(finding.name, () => setView(finding)));
  document.getElementById("controls").replaceChildren(
    fieldset("Attention", ...kinds),
    fieldset("Layer", ...layers),
    fieldset("Heads", ...choices, button("all", () => setAll(true)), button("none", () => setAll(false))),
    ...(found.length ? [fieldset("Found in this sentence", ...found)] : []),
  );
}

// Lines

/** The largest weight between two words in the heads that are shown. */
function weightOf(query, key) {
  let largest = 0;
  for (const head of state.heads) largest = Math.max(largest, heads()[head][query][key]);
  return largest;
}

/** The word whose lines are shown; null for all words. */
const focus = () => pointed ?? state.pinned;

function isShown(query, key) {
  const word = focus();
  return word === null || word.number === (word.side === "query" ? query : key);
}

/** Draw the words once per view; the lines change with the word at the pointer. */
function draw() {
  const { queries, keys } = kind();
  const available = Math.max(260, linesBox.clientWidth);
  const longest = Math.max(...[...queries, ...keys].map(textWidth));
  const side = Math.min(Math.max(longest + 20, 110), Math.round(0.36 * available));
  const width = Math.min(available, 2 * side + GAP);
  const height = ROW * Math.max(queries.length, keys.length) + ROW;
  const svg = svgElement("svg", { viewBox: `0 0 ${width} ${height}`, width, height, role: "group" });
  svg.setAttribute("aria-label", "Words, and the lines of their attention");
  svg.style.width = `${width}px`;
  svg.style.height = `${height}px`;
  linesBox.replaceChildren(svg);

  const lines = svgElement("g", { class: "weights" });
  svg.append(
    heading(kind().query_name, side - 8, "end"),
    heading(kind().key_name, width - side + 8, "start"),
    lines,
  );
  const words = [];
  queries.forEach((word, number) => words.push(wordOf(svg, word, "query", number, side - 8, side)));
  keys.forEach((word, number) => words.push(wordOf(svg, word, "key", number, width - side + 8, side)));
  update = () => {
    drawLines(lines, side, width - side);
    for (const word of words) word.update();
    showStrongest();
  };
  update();
}

let update = () => {};

function heading(text, x, anchor) {
  const head = svgElement("text", { x, y: 14, "text-anchor": anchor, class: "side" });
  head.textContent = text;
  return head;
}

const measure = document.createElement("canvas").getContext("2d");
measure.font = `14px ${getComputedStyle(document.body).fontFamily}`;
const textWidth = (text) => measure.measureText(text).width;

function drawLines(group, left, right) {
  const lines = [];
  for (const head of state.heads) {
    heads()[head].forEach((row, query) => {
      row.forEach((weight, key) => {
        if (weight < MIN_WEIGHT || !isShown(query, key)) return;
        lines.push(
          svgElement("line", {
            x1: left,
            y1: ROW * (query + 1.5),
            x2: right,
            y2: ROW * (key + 1.5),
            stroke: colour(head),
            opacity: weight / 1000,
          }),
        );
      });
    });
  }
  group.replaceChildren(...lines);
}

/** A word that shows its lines when it is pointed at, and keeps them when it is chosen. */
function wordOf(svg, word, side, number, x, width) {
  const group = svgElement("g", { class: "word", tabindex: 0, role: "button" });
  group.setAttribute("aria-label", `${word}, ${side === "query" ? kind().query_name : kind().key_name}`);
  const y = ROW * (number + 1.5);
  const area = { x: side === "query" ? 0 : x - 8, y: y - ROW / 2, width, height: ROW };
  const box = svgElement("rect", area);
  const text = svgElement("text", { x, y: y + 5, "text-anchor": side === "query" ? "end" : "start" });
  text.textContent = word;
  const title = svgElement("title", {});
  title.textContent = word;
  group.append(title, box, text);
  svg.append(group);
  shorten(text, word, width - 12);

  const isThis = (other) => other !== null && other.side === side && other.number === number;
  group.addEventListener("pointerenter", (event) => {
    if (event.pointerType !== "mouse") return; // a tap is a click
    pointed = { side, number };
    update();
  });
  group.addEventListener("pointerleave", () => {
    pointed = null;
    update();
  });
  const toggle = () => {
    state.pinned = isThis(state.pinned) ? null : { side, number };
    update();
  };
  group.addEventListener("click", toggle);
  group.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" && event.key !== " ") return;
    event.preventDefault();
    toggle();
  });
  return {
    update() {
      const word = focus();
      const isFocus = isThis(word);
      let strength = 1;
      if (word !== null && !isFocus) {
        strength = 0;
        if (word.side !== side) {
          const pair = side === "query" ? [number, word.number] : [word.number, number];
          strength = weightOf(...pair) / 1000;
        }
      }
      group.setAttribute("aria-pressed", isThis(state.pinned));
      group.classList.toggle("focus", isFocus);
      text.style.opacity = 0.35 + 0.65 * strength;
      box.style.fillOpacity = isFocus ? 1 : word === null ? 0 : 0.6 * strength;
    },
  };
}

/** Cut a text off that is wider than its place. */
function shorten(text, word, width) {
  let length = word.length;
  while (length > 1 && text.getComputedTextLength() > width) {
    length -= 1;
    text.textContent = `${word.slice(0, length)}…`;
  }
}

// The strongest weights of a word, as text

function showStrongest() {
  const word = focus();
  const { queries, keys } = kind();
  if (word === null) {
    strongestBox.replaceChildren();
    return;
  }
  const weights = [];
  for (const head of state.heads) {
    heads()[head].forEach((row, query) => {
      row.forEach((weight, key) => {
        if (isShown(query, key)) weights.push({ head, query, key, weight });
      });
    });
  }
  weights.sort((a, b) => b.weight - a.weight);
  const rows = weights.slice(0, N_STRONGEST).map(({ head, query, key, weight }) => {
    const swatch = element("i", { class: "swatch" });
    swatch.style.background = colour(head);
    const text = `${queries[query]} → ${keys[key]} `;
    const value = element("b", {}, (weight / 1000).toFixed(2));
    return element("li", {}, swatch, text, value, `, head ${head + 1}`);
  });
  strongestBox.replaceChildren(element("ol", {}, ...rows));
}

document.addEventListener("keydown", (event) => {
  if (event.key !== "Escape") return;
  state.pinned = null;
  update();
});
document.getElementById("explorer").hidden = false;
let drawnWidth = linesBox.clientWidth;
addEventListener("resize", () => {
  if (linesBox.clientWidth === drawnWidth) return;
  drawnWidth = linesBox.clientWidth;
  draw();
});
setView(DATA.start);
