// VMs, money, failures, dead letters, decisions and what happened: everything on the page besides the queries.

import { Figures, Keyed, make, say, show } from "./elements.js";
import { getWithToken } from "./gateway.js";
import { bytes, clock, counted, percent, seconds, usd, wall } from "./words.js";
import { stateKind } from "./queries.js";

const MARKS_MOST = 50;
const DECISIONS_MOST = 500;

const path = (...parts) => "/" + parts.map(encodeURIComponent).join("/");

// ------------------------------------------------------------------------------------------------------------- VMs

class VmCard {
  constructor(vm, orders) {
    this.state = make("span", { class: "badge" });
    this.period = make("progress", { max: 1, value: 0, "aria-label": `Billing period of ${vm.name}` });
    this.place = make("p", { class: "quiet" });
    this.figures = new Figures({ cost: "Cost", used: "Used", traffic: "Sent and received", queries: "Queries" });
    this.story = make("ul");
    const give = (action) => () => orders.give(path("vms", vm.name, action));
    const stop = () => {
      if (confirm(`Terminate ${vm.name} now? Its open runs are dispatched elsewhere.`)) give("stop")();
    };
    this.element = make(
      "article",
      { "data-vm": vm.name },
      make("div", { class: "row" }, make("h3", {}, vm.name), this.state),
      this.period,
      this.place,
      this.figures.element,
      make(
        "div",
        { class: "row" },
        make("button", { type: "button", onclick: give("drain") }, `Drain ${vm.name}`),
        make("button", { type: "button", onclick: stop }, `Stop ${vm.name}`),
      ),
      make("details", {}, make("summary", {}, "Its story, and why"), this.story),
    );
  }

  update(vm) {
    this.vm = vm;
    say(this.state, vm.state);
    this.figures.set("cost", usd(vm.usd), `${seconds(vm.billed_s)} billed`);
    this.figures.set("used", seconds(vm.used_s), vm.billed_s ? `${percent(vm.used_s / vm.billed_s)} of what is billed` : "");
    this.figures.set("traffic", `${bytes(vm.sent_bytes)} sent`, `${bytes(vm.received_bytes)} received`);
    this.figures.set("queries", vm.queries.join(", ") || "none", "whose events go to it");
    const lines = vm.story.map((each) => `${clock(wall(each.at))}: ${each.happened} (${each.state})${each.why ? `, ${each.why}` : ""}`);
    if (this.story.childElementCount !== lines.length) this.story.replaceChildren(...lines.map((each) => make("li", {}, each)));
  }

  tick(nowS) {
    const since = wall(this.vm.period_since);
    const until = wall(this.vm.period_until);
    const whole = Math.max(0.001, until - since);
    const passed = Math.min(whole, Math.max(0, nowS - since));
    this.period.value = passed / whole;
    const gone = this.vm.reclaimed_at ? `; its provider takes it back at ${clock(wall(this.vm.reclaimed_at))}` : "";
    say(this.place, `${seconds(Math.round(passed))} of the billing period of ${seconds(whole)}; the next begins at ${clock(until)}${gone}`);
  }
}

export class Vms {
  constructor(container, none, orders) {
    this.none = none;
    this.cards = new Keyed(container, (vm) => vm.name, (vm) => new VmCard(vm, orders));
  }

  update(vms, nowS) {
    this.cards.update(vms);
    show(this.none, vms.length === 0);
    for (const card of this.cards.views.values()) card.tick(nowS);
  }
}

// ----------------------------------------------------------------------------------------------------------- money

export class Money {
  constructor(container) {
    this.figures = new Figures({
      today: "Spent today (UTC)",
      reserved: "Reserved",
      left: "Left to reserve",
      all: "Since the gateway started",
      used: "Of what is billed",
    });
    this.part = make("progress", { max: 1, value: 0, "aria-label": "Spent and reserved of the budget of today" });
    this.limit = make("p", { class: "quiet" });
    this.trouble = make("p", { class: "bad" });
    this.rows = make("tbody");
    const heads = ["VM", "cost", "billed", "used", "sent", "received"].map((head) => make("th", { scope: "col" }, head));
    const table = make("table", {}, make("thead", {}, make("tr", {}, ...heads)), this.rows);
    const scrolled = make("div", { class: "wide", tabindex: 0, role: "region", "aria-label": "Bills of the last VMs" }, table);
    this.bills = make("details", {}, make("summary", {}, "Bills of the last 100 VMs"), scrolled);
    container.append(this.figures.element, this.part, this.limit, this.trouble, this.bills);
  }

  update(costs) {
    const limit = costs.usd_per_day;
    const queries = Object.entries(costs.spent_today_by_query_usd).map(([name, spent]) => `${name} ${usd(spent)}`);
    this.figures.set("today", usd(costs.spent_today_usd), limit === null ? "no limit for a day" : `of ${usd(limit)} a day`);
    this.figures.set("reserved", usd(costs.reserved_usd), "for billing periods of VMs that live");
    this.figures.set("left", costs.left_usd === null ? "no limit" : usd(costs.left_usd), this.otherLimits(costs));
    this.figures.set("all", usd(costs.usd), queries.length ? `today: ${queries.join(", ")}` : "");
    const used = costs.billed_s > 0 ? `${percent(costs.used_s / costs.billed_s)} used` : "nothing billed";
    this.figures.set("used", used, `${seconds(costs.used_s)} of ${seconds(costs.billed_s)}`);
    show(this.part, limit !== null && limit > 0);
    if (limit > 0) this.part.value = Math.min(1, (costs.spent_today_usd + costs.reserved_usd) / limit);
    const reached = costs.limit_reached && costs.limit_reached_in_s !== null;
    say(this.limit, reached ? `At the present rate ${costs.limit_reached} is reached in ${seconds(costs.limit_reached_in_s)}.` : "");
    const troubles = [costs.trouble && `No more money is reserved: ${costs.trouble}.`, costs.quota?.why && `The quota: ${costs.quota.why}.`];
    say(this.trouble, troubles.filter(Boolean).join(" "));
    const cells = (bill) => [bill.vm, usd(bill.usd), seconds(bill.billed_s), seconds(bill.used_s), bytes(bill.sent_bytes), bytes(bill.received_bytes)];
    const rows = costs.bills.map((bill) => make("tr", {}, ...cells(bill).map((text) => make("td", {}, text))));
    if (this.bills.open || this.rows.childElementCount !== rows.length) this.rows.replaceChildren(...rows);
  }

  otherLimits(costs) {
    const limits = [
      [costs.usd_per_hour, "an hour"],
      [costs.usd_per_query_day, "a query and day"],
      [costs.quota?.usd_today ?? null, "today, of the quota"],
    ];
    return limits.filter(([limit]) => limit !== null).map(([limit, per]) => `at most ${usd(limit)} ${per}`).join(", ");
  }
}

// ------------------------------------------------------------------------------------- failures and dead letters

class FailureCard {
  constructor(query, orders) {
    this.name = query.name;
    this.orders = orders;
    this.failed = make("p", { class: "bad" });
    this.again = make("p", { class: "quiet" });
    this.restart = this.button(`Restart ${query.name}`, () => orders.give(path("queries", query.name, "restart")));
    this.count = make("p");
    this.replay = this.button("Replay all dead letters", () => this.act("replay", "Feed all dead letters back into the query as new events?"));
    this.drop = this.button("Drop all dead letters", () => this.act("drop", "Delete all dead letters of the query?"));
    this.look = this.button("Show dead letters", () => this.list(0));
    this.letters = make("ol", { class: "list" });
    this.row = make("div", { class: "row" }, this.look, this.replay, this.drop);
    const parts = [this.failed, this.again, this.restart, this.count, this.row, this.letters];
    this.element = make("article", { "data-failure": query.name }, make("h3", {}, query.name), ...parts);
  }

  button(text, onclick) {
    return make("button", { type: "button", onclick }, text);
  }

  async act(action, question) {
    if (!confirm(question)) return;
    await this.orders.give(path("queries", this.name, "dead-letters", action));
    this.letters.replaceChildren();
  }

  async list(after) {
    const found = await this.orders.tried(() => getWithToken(`${path("queries", this.name, "dead-letters")}?limit=20&after=${after}`));
    if (found === null) return;
    const shown = found.letters.map((letter) =>
      make(
        "li",
        {},
        make("p", {}, make("strong", {}, letter.reason)),
        make("p", { class: "quiet" }, `${letter.at}, ${letter.source}`),
        make("pre", {}, letter.encoding === "text" ? letter.content : `in base64: ${letter.content}`),
      ),
    );
    if (found.next !== null) shown.push(make("li", {}, this.button("Show the next dead letters", () => this.list(found.next))));
    this.letters.replaceChildren(...shown);
  }

  update(query) {
    const failed = hasFailed(query);
    show(this.failed, failed);
    show(this.again, failed);
    show(this.restart, failed);
    say(this.failed, failed ? `${query.state}: ${query.reason}` : "");
    const since = query.since ? `since ${clock(wall(query.since))}, ` : "";
    const next = query.opened_again_in_s === null ? "" : `; opened again in ${seconds(Math.round(query.opened_again_in_s))}`;
    say(this.again, failed ? `${since}${counted(query.failures, "failure")} in a row${next}` : "");
    say(this.count, query.dead_letters ? counted(query.dead_letters, "dead letter") : "");
    show(this.row, query.dead_letters > 0);
    if (!query.dead_letters) this.letters.replaceChildren();
  }
}

const hasFailed = (query) => stateKind(query.state) === "bad";

export class Failures {
  constructor(container, none, orders) {
    this.none = none;
    this.cards = new Keyed(container, (query) => query.name, (query) => new FailureCard(query, orders));
  }

  update(queries) {
    const troubled = queries.filter((query) => hasFailed(query) || query.dead_letters > 0);
    this.cards.update(troubled);
    show(this.none, troubled.length === 0);
  }
}

// --------------------------------------------------------------------------------------------------------- decisions

function sentences(title, lines) {
  if (lines.length === 0) return [];
  return [make("h4", {}, title), make("ul", {}, ...lines.map((each) => make("li", {}, each)))];
}

function decisionView(decision) {
  const head = make("p", {}, `${clock(decision.wall_s)} · ${decision.query}: `, make("strong", {}, decision.verdict));
  const done = decision.done.length ? [make("ul", {}, ...decision.done.map((each) => make("li", {}, each)))] : [];
  const more = [...sentences("Why", decision.why), ...sentences("Why not otherwise", decision.why_not)];
  const details = make("details", {}, make("summary", {}, "Why, and why not otherwise"), ...more);
  return { element: make("li", {}, head, ...done, details), update: () => {} };
}

const decisionKey = (decision) => `${decision.wall_s} ${decision.query}`;

export class Decisions {
  constructor(container, none, older) {
    this.none = none;
    this.older = older;
    this.kept = [];
    this.views = new Keyed(container, decisionKey, decisionView);
  }

  get oldestS() {
    return this.kept.at(-1)?.wall_s;
  }

  add(decisions, more) {
    const known = new Map([...this.kept, ...decisions].map((each) => [decisionKey(each), each]));
    this.kept = [...known.values()].sort((a, b) => b.wall_s - a.wall_s).slice(0, DECISIONS_MOST);
    this.views.update(this.kept);
    show(this.none, this.kept.length === 0);
    if (more !== undefined) show(this.older, more && this.kept.length < DECISIONS_MOST);
  }
}

// ------------------------------------------------------------------------------------------------------ what happened

export class Marks {
  constructor(container, none) {
    this.none = none;
    this.views = new Keyed(container, (mark) => `${mark.at} ${mark.what} ${mark.of}`, (mark) => ({
      element: make("li", {}, `${clock(mark.at)}: ${mark.of} ${mark.what}${mark.why ? `, ${mark.why}` : ""}`),
      update: () => {},
    }));
  }

  update(moments) {
    const found = [];
    for (let index = moments.length - 1; index >= 0 && found.length < MARKS_MOST; index -= 1) {
      found.push(...(moments[index].marks ?? []).toReversed());
    }
    this.views.update(found.slice(0, MARKS_MOST));
    show(this.none, found.length === 0);
  }
}
