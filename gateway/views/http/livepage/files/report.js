// The report of a past period: the charts, decisions and marks of the live page, from the data inside the page.

import { timeline } from "./charts.js";
import { Figures, make, say, show } from "./elements.js";
import { Decisions, Marks } from "./panels.js";
import { QueryCharts } from "./queries.js";
import { bytes, clock, counted, percent, seconds, usd } from "./words.js";

const at = (id) => document.getElementById(id);
const data = JSON.parse(at("data").textContent);
const line = timeline(data.moments);
const about = (number, word) => `about ${counted(Math.round(number), word)}`;

// What the moments add up to for one query. Rates are means over a moment, so the sums are rounded.
function sums(name) {
  const found = { events: 0, away: 0, raw: 0, sent: 0, highest: 0, over: 0, ran: 0, letters: 0 };
  const limit = data.thresholds[name]?.qos_latency_s ?? null;
  for (const moment of data.moments) {
    const query = moment.queries?.[name];
    if (query === undefined) continue;
    found.ran += moment.for_s;
    found.events += (query.input ?? 0) * moment.for_s;
    found.raw += (query.raw ?? 0) * moment.for_s;
    found.sent += (query.sent ?? 0) * moment.for_s;
    for (const [lane, rate] of Object.entries(query.completed ?? {})) if (lane !== "home") found.away += rate * moment.for_s;
    found.highest = Math.max(found.highest, query.latency ?? 0);
    if (limit !== null && (query.latency ?? 0) > limit) found.over += moment.for_s;
    found.letters = query.dead_letters ?? 0;
  }
  return { ...found, limit };
}

class QueryReport {
  constructor(name) {
    this.query = { name, thresholds: data.thresholds[name] ?? {} };
    const sum = sums(name);
    const figures = new Figures({
      events: "Events that arrived",
      latency: "Highest latency L",
      over: "Time with L above the promise",
      away: "Completed on VMs",
      sent: "Sent to VMs",
      letters: "Dead letters at the end",
    });
    figures.set("events", about(sum.events, "event"), `in ${seconds(sum.ran)} in which the query was open`);
    const late = sum.limit !== null && sum.highest > sum.limit;
    figures.set("latency", seconds(sum.highest), sum.limit === null ? "" : `promised: ${seconds(sum.limit)}`, late ? "bad" : "good");
    figures.set("over", seconds(sum.over), sum.ran > 0 ? `${percent(sum.over / sum.ran)}; a minute counts with its highest L` : "");
    figures.set("away", about(sum.away, "event"), sum.events > 0 ? percent(Math.min(1, sum.away / sum.events)) : "");
    figures.set("sent", bytes(sum.sent), `of ${bytes(sum.raw)} raw`);
    figures.set("letters", counted(sum.letters, "dead letter"));
    this.charts = new QueryCharts();
    this.element = make("article", { "data-query": name }, make("h3", {}, name), figures.element, this.charts.element);
  }

  draw() {
    this.charts.draw(this.query, line.at, line.of, data.moments, data.from_s, data.to_s);
  }
}

say(at("period"), `${clock(data.from_s)} to ${clock(data.to_s)}`);
say(at("made"), `${data.config}, state_dir ${data.state_dir}; made ${clock(data.made_s)} by Spillway ${data.version}`);
const money = new Figures({ usd: "Cost of VMs", vms: "VM time", ran: "A gateway ran for" });
money.set("usd", usd(data.usd), "with their traffic");
money.set("vms", seconds(data.vm_s), "all VMs together, as far as each moment shows them");
money.set("ran", seconds(data.moments.reduce((sum, moment) => sum + moment.for_s, 0)));
at("money").append(money.element);

const queries = data.queries.map((name) => new QueryReport(name));
at("queries").append(...queries.map((query) => query.element));
show(at("no-moment"), data.moments.length === 0);
for (const query of queries) query.draw();
new Marks(at("marks"), at("no-mark")).update(data.moments);
new Decisions(at("decisions"), at("no-decision"), at("older")).add(data.decisions);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
  for (const query of queries) {
    query.charts.redraw();
    query.draw();
  }
});
