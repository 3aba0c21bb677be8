// One chart over time: its lines, the marks of what happened, and a legend that explains what is drawn and no more.

import { make, say } from "./elements.js";
import { clock } from "./words.js";

const HEIGHT = 180;
const GAP_S = 5;
const AXIS_PX = 68;
const TIMES_PX = 36;

const DASHES = { solid: [], dashed: [7, 4], dotted: [2, 4] };

function color(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
}

// A sample of a line or of a mark for the legend, drawn as the chart draws it.
function sample(name, dash, upright) {
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  const line = document.createElementNS("http://www.w3.org/2000/svg", "line");
  const ends = upright ? { x1: 4, x2: 4, y1: 0, y2: 14 } : { x1: 0, x2: 22, y1: 7, y2: 7 };
  svg.setAttribute("width", upright ? 8 : 22);
  svg.setAttribute("height", 14);
  svg.setAttribute("aria-hidden", "true");
  for (const [key, value] of Object.entries(ends)) line.setAttribute(key, value);
  line.setAttribute("stroke", `var(--${name})`);
  line.setAttribute("stroke-width", 2.5);
  line.setAttribute("stroke-dasharray", DASHES[dash].join(" "));
  svg.append(line);
  return svg;
}

// The ends of the moments in seconds since 1970, with a place without values wherever the gateway did not run.
export function timeline(moments) {
  const at = [];
  const of = [];
  let before = null;
  for (const moment of moments) {
    const end = moment.id / 1000;
    if (before !== null && end - moment.for_s - before > GAP_S) {
      at.push(before + 0.001);
      of.push(null);
    }
    at.push(end);
    of.push(moment);
    before = end;
  }
  return { at, of };
}

// A spec is {lines, marks, format, tick}: a line is {key, label, color, dash, values}, a mark {at, label, color, dash};
// `format` writes a value with its unit, `tick` writes it beside the axis.
export class Chart {
  constructor(title) {
    this.legend = make("ul", { class: "legend" });
    this.plot = make("div", { class: "plot", role: "img" });
    this.title = title;
    this.element = make("figure", {}, make("figcaption", {}, title), this.plot, this.legend);
    this.u = null;
    this.shape = "";
    this.entries = [];
    this.marks = [];
    this.resizes = new ResizeObserver(() => this.fit());
    this.resizes.observe(this.plot);
  }

  remove() {
    this.resizes.disconnect();
    this.u?.destroy();
    this.u = null;
  }

  // The colours of the page have changed.
  redraw() {
    this.shape = "";
  }

  fit() {
    const width = this.plot.clientWidth;
    if (this.u !== null && width > 0 && width !== this.u.width) this.u.setSize({ width, height: HEIGHT });
  }

  draw(at, spec, fromS, toS) {
    if (this.plot.clientWidth === 0) return;
    this.spec = spec;
    this.at = at;
    this.range = [fromS, toS];
    this.marks = spec.marks.filter((mark) => mark.at >= fromS && mark.at <= toS);
    const kinds = new Map(this.marks.map((mark) => [mark.label, mark]));
    const lines = JSON.stringify(spec.lines.map((line) => [line.key, line.label]));
    const shape = lines + JSON.stringify([...kinds.keys()]);
    const data = [at, ...spec.lines.map((line) => line.values)];
    if (shape === this.shape) {
      this.u.setData(data, false);
      this.u.setScale("x", { min: fromS, max: toS });
    } else {
      this.shape = shape;
      this.build(data, kinds);
    }
    this.tell(null);
  }

  build(data, kinds) {
    this.u?.destroy();
    const axis = { stroke: color("quiet"), grid: { stroke: color("grid"), width: 1 }, ticks: { stroke: color("grid") } };
    const options = {
      width: this.plot.clientWidth,
      height: HEIGHT,
      legend: { show: false },
      cursor: { drag: { x: false, y: false } },
      scales: { x: { time: true, range: () => this.range }, y: { range: (_, low, high) => [0, (high || 1) * 1.08] } },
      axes: [
        { ...axis, space: 80, size: TIMES_PX, values: (_, splits) => splits.map((each) => clock(each).slice(-8)) },
        { ...axis, size: AXIS_PX, values: (_, splits) => splits.map((each) => this.spec.tick(each)) },
      ],
      series: [{}, ...this.spec.lines.map((line) => this.series(line))],
      hooks: { draw: [(u) => this.drawMarks(u)], setCursor: [(u) => this.tell(u.cursor.idx)] },
    };
    this.u = new uPlot(options, data, this.plot);
    this.entries = this.spec.lines.map((line) => make("b"));
    const explained = this.spec.lines.map((line, index) =>
      make("li", {}, sample(line.color, line.dash ?? "solid", false), make("span", {}, line.label), this.entries[index]),
    );
    const marked = [...kinds.values()].map((mark) =>
      make("li", {}, sample(mark.color, mark.dash, true), make("span", {}, mark.label)),
    );
    this.legend.replaceChildren(...explained, ...marked);
  }

  series(line) {
    return {
      label: line.label,
      stroke: color(line.color),
      width: line.dash ? 1.5 : 2,
      dash: DASHES[line.dash ?? "solid"],
      points: { show: (u, _, first, last) => last - first < 3 },
    };
  }

  drawMarks(u) {
    const { left, top, width, height } = u.bbox;
    u.ctx.save();
    u.ctx.lineWidth = 1.5 * devicePixelRatio;
    for (const mark of this.marks) {
      const x = u.valToPos(mark.at, "x", true);
      if (x < left || x > left + width) continue;
      u.ctx.strokeStyle = color(mark.color);
      u.ctx.setLineDash(DASHES[mark.dash].map((each) => each * devicePixelRatio));
      u.ctx.beginPath();
      u.ctx.moveTo(x, top);
      u.ctx.lineTo(x, top + height);
      u.ctx.stroke();
    }
    u.ctx.restore();
  }

  // Shows the values under the pointer, or the newest ones, in the legend; says the newest ones to a screen reader.
  tell(index) {
    if (this.entries.length !== this.spec.lines.length) return;
    const texts = this.spec.lines.map((line) => {
      const value = index === null || index === undefined ? line.values.findLast((each) => each != null) : line.values[index];
      return value == null ? "–" : this.spec.format(value);
    });
    texts.forEach((text, each) => say(this.entries[each], text));
    if (index !== null && index !== undefined) return;
    const said = this.spec.lines.map((line, each) => `${line.label}: ${texts[each]}`).join("; ");
    this.plot.setAttribute("aria-label", `${this.title}. ${said || "No values yet"}`);
  }
}
