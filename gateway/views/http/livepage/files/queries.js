// The card of one query: its state, its figures, its charts, and the orders that an operator can give.

import { Chart } from "./charts.js";
import { Figures, Keyed, make, say, show } from "./elements.js";
import { bytesPerSecond, bytes, clock, counted, eventsPerSecond, percent, ratePerSecond, seconds, wall } from "./words.js";

const LANE_COLORS = ["c2", "c3", "c4", "c5", "c6"];

const MARKS = {
  launched: { label: "VM launched", color: "good", dash: "dashed" },
  adopted: { label: "VM adopted", color: "good", dash: "dotted" },
  ready: { label: "VM ready", color: "good", dash: "solid" },
  terminated: { label: "VM terminated", color: "bad", dash: "solid" },
  failed: { label: "VM or query failed", color: "bad", dash: "dashed" },
  lost: { label: "VM lost", color: "bad", dash: "dotted" },
  reclaimed: { label: "VM reclaimed by its provider", color: "warn", dash: "dotted" },
  pinned: { label: "pinned", color: "c5", dash: "dashed" },
  unpinned: { label: "pin ended", color: "c5", dash: "dotted" },
  moved: { label: "state moved", color: "c6", dash: "dashed" },
};

export function stateKind(state) {
  return { running: "good", failed: "bad", "given up": "bad" }[state] ?? "warn";
}

// The lines of a query's charts from its moments; `of` has null where the gateway did not run.
function specs(query, at, of, marks) {
  const moments = of.map((moment) => moment?.queries?.[query.name] ?? null);
  const line = (key, label, lineColor, value, dash) => ({
    key,
    label,
    color: lineColor,
    dash,
    values: moments.map((each) => (each === null ? null : (value(each) ?? null))),
  });
  const threshold = (key, label, lineColor, value, dash) => line(key, label, lineColor, () => value, dash);
  const limits = query.thresholds;
  const used = (lines) => lines.filter((each) => each.values.some((value) => value !== null));
  const lanes = [...new Set(moments.flatMap((each) => Object.keys(each?.completed ?? {})))].sort();
  const away = lanes.filter((lane) => lane !== "home");
  const chart = (format, lines, drawn = [], tick = format) => ({ format, tick, marks: drawn, lines: used(lines) });
  return {
    latency: chart(
      seconds,
      [
        line("latency", "L, compared with the thresholds", "c1", (each) => each.latency ?? 0),
        line("processing", "mean processing latency", "c3", (each) => each.processing),
        line("delivery", "mean delivery latency", "c2", (each) => each.delivery),
        threshold("send", "events go to VMs above (L_d)", "c7", limits.send_above_s, "dashed"),
        threshold("start", "a VM is launched above (L_s)", "c5", limits.start_vm_above_s, "dashed"),
        threshold("qos", "promised (QoS)", "bad", limits.qos_latency_s, "dotted"),
      ],
      marks,
    ),
    rates: chart(
      eventsPerSecond,
      [
        line("input", "arrive", "c1", (each) => each.input ?? 0),
        ...lanes.map((lane) =>
          line(
            lane,
            lane === "home" ? "completed at home" : `completed on ${lane}`,
            lane === "home" ? "c7" : LANE_COLORS[away.indexOf(lane) % LANE_COLORS.length],
            (each) => each.completed?.[lane] ?? 0,
          ),
        ),
        line("forecast", "forecast", "c5", (each) => each.forecast?.rate, "dashed"),
        line("low", "forecast: lower end of nine times of ten", "c5", (each) => each.forecast?.low, "dotted"),
        line("high", "forecast: upper end of nine times of ten", "c6", (each) => each.forecast?.high, "dotted"),
      ],
      [],
      ratePerSecond,
    ),
    share: chart(percent, [
      line("share", "share of the events that goes to VMs", "c1", (each) => each.share ?? 0),
      line("pin", "pinned share", "c5", (each) => each.pin, "dashed"),
    ]),
    bytes: chart(bytesPerSecond, [
      line("raw", "raw, before trimming and compression", "c7", (each) => each.raw ?? 0),
      line("sent", "sent to VMs", "c1", (each) => each.sent ?? 0),
    ]),
    runs: chart(
      (value) => counted(value, "run"),
      [line("open", "open runs", "c1", (each) => each.open_runs ?? 0)],
      [],
      String,
    ),
    order: chart(percent, [
      line("order", "events whose run was completed after a later one", "c1", (each) => each.out_of_order ?? 0),
    ]),
  };
}

// What happened to VMs and to this query, as marks of its chart. What is no query is a VM.
function marksOf(moments, name) {
  const found = [];
  for (const moment of moments) {
    for (const mark of moment.marks ?? []) {
      const kind = MARKS[mark.what];
      const concerns = mark.of === name || !(mark.of in (moment.queries ?? {}));
      if (kind !== undefined && concerns) found.push({ at: mark.at, ...kind });
    }
  }
  return found;
}

// The charts of one query; of the query only the name and the thresholds are used.
export class QueryCharts {
  constructor() {
    this.all = {
      latency: new Chart("Latency against its thresholds"),
      rates: new Chart("Events per second, by lane"),
      share: new Chart("Share of the cloud"),
      bytes: new Chart("Bytes per second, raw and sent"),
      runs: new Chart("Open runs"),
      order: new Chart("Out of order"),
    };
    this.element = make("div", { class: "charts" }, ...Object.values(this.all).map((chart) => chart.element));
  }

  draw(query, at, of, moments, fromS, toS) {
    const drawn = specs(query, at, of, marksOf(moments, query.name));
    for (const [key, chart] of Object.entries(this.all)) chart.draw(at, drawn[key], fromS, toS);
  }

  redraw() {
    for (const chart of Object.values(this.all)) chart.redraw();
  }

  remove() {
    for (const chart of Object.values(this.all)) chart.remove();
  }
}

class QueryCard {
  constructor(query, orders) {
    this.name = query.name;
    this.state = make("span", { class: "badge" });
    this.head = make("span", { class: "quiet" });
    this.reason = make("p", { class: "bad" });
    this.home = make("p", { class: "quiet" });
    this.path = make("p", { class: "quiet" });
    this.figures = new Figures({
      latency: "Latency L",
      delivery: "Delivery latency",
      input: "Events that arrive",
      share: "Share to VMs",
      runs: "Open runs",
      order: "Out of order",
      sent: "Sent to VMs",
      events: "Since the gateway started",
    });
    this.charts = new QueryCharts();
    this.details = make(
      "details",
      { ontoggle: () => orders.redraw() },
      make("summary", {}, make("h3", {}, query.name), this.state, this.head),
      this.reason,
      this.home,
      this.path,
      this.figures.element,
      this.pinForm(orders),
      this.charts.element,
    );
    this.element = make("article", { "data-query": query.name }, this.details);
  }

  pinForm(orders) {
    const id = (part) => `${part}-of-${this.name}`;
    const option = (value, text) => make("option", { value }, text);
    const to = make("select", { id: id("to") }, option("home", "home"), option("cloud", "cloud"), option("share", "a share"));
    const share = make("input", { id: id("share"), type: "number", min: 1, max: 99, step: 1, value: 50, disabled: true });
    const times = [option("10m", "10 minutes"), option("1h", "1 hour"), option("6h", "6 hours"), option("1d", "1 day")];
    const span = make("select", { id: id("for") }, ...times);
    span.value = "1h";
    to.addEventListener("change", () => {
      share.disabled = to.value !== "share";
    });
    this.unpin = make("button", { type: "button" }, "End the pin");
    this.unpin.addEventListener("click", () => orders.give(`/queries/${encodeURIComponent(this.name)}/unpin`));
    const form = make(
      "form",
      { class: "row" },
      make("label", { for: to.id }, "Pin to"),
      to,
      make("label", { for: share.id }, "share in %"),
      share,
      make("label", { for: span.id }, "for"),
      span,
      make("button", { type: "submit" }, "Pin"),
      this.unpin,
    );
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      const where = to.value === "share" ? Number(share.value) / 100 : to.value;
      orders.give(`/queries/${encodeURIComponent(this.name)}/pin`, { to: where, for: span.value });
    });
    return form;
  }

  remove() {
    this.charts.remove();
  }

  update(query) {
    this.query = query;
    say(this.state, query.state);
    this.state.className = `badge ${stateKind(query.state)}`;
    const limits = query.thresholds;
    say(this.head, `L ${seconds(query.latency_s)}, ${percent(query.share_to_cloud)} to VMs, mode ${query.mode}`);
    say(this.reason, query.reason || query.trouble);
    show(this.reason, Boolean(query.reason || query.trouble));
    say(this.home, query.stays_home ? `It stays home: ${query.stays_home}.` : "");
    show(this.home, Boolean(query.stays_home));
    const referred = query.data_path === "reference";
    say(this.path, referred ? "Executors read the events that stay home." : "");
    show(this.path, referred);
    const late = query.latency_s > limits.qos_latency_s;
    const promised = `${late ? "above" : "within"} the promised ${seconds(limits.qos_latency_s)}`;
    this.figures.set("latency", seconds(query.latency_s), promised, late ? "bad" : "good");
    const pinned = query.pin && `pinned to ${percent(query.pin.share)} until ${clock(wall(query.pin.until))}`;
    this.figures.set("share", percent(query.share_to_cloud), pinned ?? `policy ${query.policy} decides`);
    show(this.unpin, query.pin !== null);
    const saved = query.raw_bytes > 0 ? ` (${percent(query.sent_bytes / query.raw_bytes)})` : "";
    this.figures.set("sent", bytes(query.sent_bytes), `of ${bytes(query.raw_bytes)} raw${saved}`);
    const shed = query.shed_events ? `, ${counted(query.shed_events, "event")} shed` : "";
    const late_ = query.late_results ? `, ${counted(query.late_results, "late result")}` : "";
    this.figures.set("events", counted(query.events, "event"), `${counted(query.results, "result")}${late_}${shed}`);
    const disordered = query.events ? query.out_of_order_events / query.events : 0;
    this.figures.set("order", percent(disordered), `${counted(query.out_of_order_events, "event")} since the start`);
  }

  // The figures of the newest moment, which are of one slot.
  now(moment) {
    this.figures.set("delivery", seconds(moment.delivery), "mean of the last slot");
    const input = moment.input ?? 0;
    this.figures.set("input", eventsPerSecond(input), `${counted(moment.waiting ?? 0, "event")} wait for dispatch`);
    this.figures.set("runs", counted(moment.open_runs ?? 0, "run"), "dispatched and not completed");
  }

  draw(at, of, moments, fromS, toS) {
    const last = moments.at(-1)?.queries?.[this.name];
    if (last !== undefined) this.now(last);
    if (!this.details.open || this.query === undefined) return;
    this.charts.draw(this.query, at, of, moments, fromS, toS);
  }
}

const OPEN_AT_FIRST = 2;

// All queries; the charts of the first ones are open.
export class Queries {
  constructor(container, orders) {
    this.made = 0;
    this.cards = new Keyed(
      container,
      (query) => query.name,
      (query) => {
        const card = new QueryCard(query, orders);
        card.details.open = this.made < OPEN_AT_FIRST;
        this.made += 1;
        return card;
      },
    );
  }

  update(queries) {
    this.cards.update(queries);
  }

  draw(at, of, moments, fromS, toS) {
    for (const card of this.cards.views.values()) card.draw(at, of, moments, fromS, toS);
  }

  newColors() {
    for (const card of this.cards.views.values()) card.charts.redraw();
  }
}
