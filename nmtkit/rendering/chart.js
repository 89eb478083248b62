// The values of a chart at the pointer, and smoothing. The points of a series are in its
// data-points: their positions in the drawing, and what they are called. A noisy series has the
// ends of its vertical scale in data-scale.
"use strict";

const REACH = 30; // distance in pixels of the drawing up to which a point is near the pointer
const GAP = 14; // pixels between the box of values and the points that it names

const box = document.createElement("div");
box.className = "values";
box.hidden = true;
document.body.append(box);

/** The point of a series that is nearest to the pointer; undefined if none is near. */
function nearest(series, at, distance) {
  let best;
  let shortest = REACH;
  series.points.forEach(([x, y, place, value], number) => {
    const length = distance(x - at.x, y - at.y);
    if (length < shortest) {
      const smooth = series.smooth && `, smoothed ${valueAt(series.smooth[number], series.scale)}`;
      best = { x, y, name: series.name, colour: series.colour, place, value: value + (smooth ?? ""), length };
      shortest = length;
    }
  });
  return best;
}

/** The points to show: of every line, the one at the pointer's step; else the nearest dot. */
function pointsAt(chart, at) {
  const isLines = chart.some((series) => series.isLine);
  const distance = isLines ? (x) => Math.abs(x) : Math.hypot;
  const points = [];
  for (const series of chart) {
    const point = nearest(series, at, distance);
    if (point) points.push(point);
  }
  points.sort((a, b) => a.length - b.length);
  return isLines ? points : points.slice(0, 1);
}

function showValues(points, svg) {
  const axis = svg.dataset.axis;
  const lines = [];
  let place;
  for (const point of points) {
    if (point.place !== place) {
      place = point.place;
      const head = document.createElement("div");
      head.textContent = axis ? `${axis} ${place}` : place;
      lines.push(head);
    }
    const dot = document.createElement("i");
    dot.style.background = point.colour;
    const line = document.createElement("div");
    line.append(dot, point.name ? `${point.name}: ${point.value}` : point.value);
    lines.push(line);
  }
  box.replaceChildren(...lines);
  box.hidden = lines.length === 0;
  if (!box.hidden) placeBox(points, svg);
}

/** Place the box at the right of its points, or at their left, else above or below them. */
function placeBox(points, svg) {
  const matrix = svg.getScreenCTM();
  const places = points.map(({ x, y }) => new DOMPoint(x, y).matrixTransform(matrix));
  const xs = places.map(({ x }) => x);
  const ys = places.map(({ y }) => y);
  const width = box.offsetWidth;
  const height = box.offsetHeight;
  const page = document.documentElement;
  const right = Math.max(...xs) + GAP;
  const left = Math.min(...xs) - GAP - width;
  let x = right + width < svg.getBoundingClientRect().right ? right : left;
  let y = ys[0] - height / 2;
  if (x < 0) {
    x = Math.min(Math.max(0, xs[0] - width / 2), page.clientWidth - width);
    y = Math.min(...ys) - GAP - height;
    if (y < 0) y = Math.max(...ys) + GAP;
  }
  box.style.left = `${x + scrollX}px`;
  box.style.top = `${Math.max(0, y) + scrollY}px`;
}

function seriesOf(group) {
  const series = {
    name: group.dataset.name,
    points: JSON.parse(group.dataset.points),
    colour: getComputedStyle(group).stroke,
    isLine: group.querySelector("path") !== null,
  };
  if (group.dataset.scale) {
    const [low, high, start, end, isLog] = JSON.parse(group.dataset.scale);
    series.scale = { low, high, start, end, isLog };
    series.group = group;
  }
  return series;
}

const noisy = [];
for (const svg of document.querySelectorAll("svg.chart")) {
  const chart = [...svg.querySelectorAll("g[data-points]")].map(seriesOf);
  noisy.push(...chart.filter((series) => series.scale));
  const show = (event) => {
    const at = new DOMPoint(event.clientX, event.clientY).matrixTransform(svg.getScreenCTM().inverse());
    showValues(pointsAt(chart, at), svg);
  };
  svg.addEventListener("pointermove", show);
  svg.addEventListener("pointerdown", show);
  svg.addEventListener("pointerleave", (event) => {
    // A finger leaves when it is lifted; what it pointed at stays until it points elsewhere.
    if (event.pointerType === "mouse") box.hidden = true;
  });
}
document.addEventListener("pointerdown", (event) => {
  if (!event.target.closest("svg.chart")) box.hidden = true;
});

// Smoothing

/** The value at a height of the drawing. */
function valueAt(y, { low, high, start, end, isLog }) {
  const share = (y - start) / (end - start);
  const value = isLog ? low * (high / low) ** share : low + share * (high - low);
  return Math.abs(value) < 1000 ? value.toPrecision(3) : Math.round(value).toString();
}

/** The moving average of heights: a weight of 0.9 is the mean of about 10 points. */
function smoothed(heights, weight) {
  let sum = 0;
  let total = 0; // of all weights; without it, the curve would begin at 0
  return heights.map((height) => {
    sum = weight * sum + height;
    total = weight * total + 1;
    return sum / total;
  });
}

/** Draw the moving average of a series, and its points in a pale colour behind. */
function smooth(series, weight) {
  series.group.querySelector(".raw")?.remove();
  const line = series.group.querySelector("path");
  series.smooth = weight > 0 ? smoothed(series.points.map(([, y]) => y), weight) : null;
  if (series.smooth) {
    const raw = line.cloneNode();
    raw.setAttribute("class", "raw");
    raw.setAttribute("d", pathOf(series.points));
    series.group.prepend(raw);
  }
  const points = series.points.map(([x, y], number) => [x, series.smooth ? series.smooth[number] : y]);
  line.setAttribute("d", pathOf(points));
  series.group.querySelector("circle").setAttribute("cy", points.at(-1)[1]);
}

const pathOf = (points) => `M${points.map(([x, y]) => `${x} ${y}`).join("L")}`;

if (noisy.length) {
  const input = document.createElement("input");
  Object.assign(input, { type: "range", min: 0, max: 0.99, step: 0.01, value: 0 });
  input.addEventListener("input", () => {
    for (const series of noisy) smooth(series, Number(input.value));
  });
  const label = document.createElement("label");
  label.className = "smoothing";
  label.append("Smoothing", input);
  noisy[0].group.closest(".charts").before(label);
}
