// The live page: loads the history, follows the stream, and gives the operator's orders.

import { timeline } from "./charts.js";
import { say, show } from "./elements.js";
import { Feed, get, order, token } from "./gateway.js";
import { Decisions, Failures, Marks, Money, Vms } from "./panels.js";
import { Queries } from "./queries.js";
import { clock, wall } from "./words.js";

const POLL_MS = 2000;
const DECISIONS = 20;
const at = (id) => document.getElementById(id);

// ------------------------------------------------------------------------------------------------------------- orders

function answer(text, kind) {
  at("answer").className = `notice ${kind}`;
  show(at("answer"), true);
  say(at("answer-text"), text);
}

const orders = {
  // Does something, and shows why it was refused; returns null then.
  async tried(what) {
    try {
      return await what();
    } catch (refusal) {
      const help = refusal.status === 401 ? " Enter the token of this gateway above." : "";
      answer(`Refused: ${refusal.message}.${help}`.replace("..", "."), "bad");
      if (refusal.status === 401) at("token").focus();
      return null;
    }
  },

  async give(path, body) {
    const done = await this.tried(() => order(path, body));
    if (done === null) return;
    answer(`Done: ${done.done ?? `${done.count} dead letters`}.`, "good");
    await refresh();
  },

  redraw: () => draw(),
};

// -------------------------------------------------------------------------------------------------------------- parts

const queries = new Queries(at("queries"), orders);
const vms = new Vms(at("vms"), at("no-vm"), orders);
const money = new Money(at("money"));
const failures = new Failures(at("failures"), at("no-failure"), orders);
const decisions = new Decisions(at("decisions"), at("no-decision"), at("older"));
const marks = new Marks(at("marks"), at("no-mark"));

const PHASES = { running: "good", starting: "warn", standby: "warn", stopping: "warn" };

function showStatus(status) {
  say(at("phase"), status.phase);
  at("phase").className = `badge ${status.trouble ? "bad" : (PHASES[status.phase] ?? "warn")}`;
  say(at("trouble"), status.trouble);
  show(at("trouble"), Boolean(status.trouble));
  say(at("version"), status.version);
  say(at("paused"), status.paused ? `Decisions are paused until ${clock(wall(status.paused_until))}.` : "");
  show(at("resume"), status.paused);
}

let refreshing = false;
let asked = false;
let refreshedMs = 0;

// Loads what is not part of a moment.
async function refresh() {
  asked = refreshing;
  if (refreshing) return;
  refreshing = true;
  try {
    const [status, found, rented, costs] = await Promise.all(["/status", "/queries", "/vms", "/costs"].map(get));
    showStatus(status);
    queries.update(found.queries);
    failures.update(found.queries);
    show(at("no-query"), found.queries.length === 0);
    vms.update(rented.vms, wall(status.at));
    money.update(costs);
    refreshedMs = performance.now();
    drawSoon();
  } catch (refusal) {
    say(at("phase"), "no answer");
    at("phase").className = "badge bad";
    connection(refusal.message, false);
  } finally {
    refreshing = false;
    if (asked) refresh();
  }
}

// -------------------------------------------------------------------------------------------------------------- charts

let drawn = false;

function drawSoon() {
  if (drawn) return;
  drawn = true;
  requestAnimationFrame(() => {
    drawn = false;
    draw();
  });
}

function draw() {
  const moments = feed.moments;
  const rangeS = Number(at("range").value);
  const toS = moments.length ? moments.at(-1).id / 1000 : Date.now() / 1000;
  const begins = moments.findIndex((moment) => moment.id / 1000 >= toS - rangeS);
  const shown = begins < 0 ? [] : moments.slice(begins);
  const line = timeline(shown);
  queries.draw(line.at, line.of, shown, toS - rangeS, toS);
}

// -------------------------------------------------------------------------------------------------------------- stream

function connection(text, live) {
  say(at("connection"), text);
  at("connection").className = live ? "good" : "bad";
}

async function loadDecisions(before) {
  const since = before === undefined ? "" : `&before=${before}`;
  try {
    const found = (await get(`/decisions?limit=${DECISIONS}${since}`)).decisions;
    decisions.add(found, found.length === DECISIONS);
  } catch (refusal) {
    connection(`The decisions cannot be loaded: ${refusal.message}`, false);
  }
}

const feed = new Feed(
  (moment) => {
    if (moment.decisions) decisions.add(moment.decisions);
    if (moment.marks) marks.update(feed.moments);
    if (performance.now() - refreshedMs > POLL_MS || moment.marks) refresh();
    drawSoon();
  },
  () => {
    marks.update(feed.moments);
    loadDecisions();
    refresh();
  },
  connection,
);

// --------------------------------------------------------------------------------------------------------------- forms

function showToken() {
  const known = token.get() !== null;
  say(at("token-state"), known ? "This tab has a token." : "This tab has no token: it can look, and not act.");
  show(at("forget"), known);
}

at("answer-close").addEventListener("click", () => show(at("answer"), false));
at("token-form").addEventListener("submit", (event) => {
  event.preventDefault();
  const text = at("token").value.trim();
  if (text) token.set(text);
  at("token").value = "";
  showToken();
});
at("forget").addEventListener("click", () => {
  token.forget();
  showToken();
});
at("pause-form").addEventListener("submit", (event) => {
  event.preventDefault();
  orders.give("/decisions/pause", { for: at("pause-for").value });
});
at("resume").addEventListener("click", () => orders.give("/decisions/resume"));
at("older").addEventListener("click", () => loadDecisions(decisions.oldestS));
at("range").addEventListener("change", draw);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
  queries.newColors();
  draw();
});

showToken();
feed.start();
// A gateway that is starting or standing by has no moments yet, and one that is gone has none any more.
setInterval(() => {
  if (performance.now() - refreshedMs > POLL_MS * 2) refresh();
}, POLL_MS);
