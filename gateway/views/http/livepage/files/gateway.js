// Talks to the gateway: figures, actions with the token, the history, and the stream that continues it.

const AGAIN_MS = 3000;
const NEWEST_MOST = 1800;
const TOKEN = "spillway-token";

export const token = {
  get: () => sessionStorage.getItem(TOKEN),
  set: (text) => sessionStorage.setItem(TOKEN, text),
  forget: () => sessionStorage.removeItem(TOKEN),
};

export class Refusal extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

async function asked(path, options) {
  let answer;
  try {
    answer = await fetch(`/api/v1${path}`, options);
  } catch {
    throw new Refusal(0, "The gateway does not answer: does it still run?");
  }
  const said = await answer.json().catch(() => ({}));
  if (!answer.ok) throw new Refusal(answer.status, said.error ?? `The gateway answered with status ${answer.status}.`);
  return said;
}

function authorized(headers = {}) {
  const text = token.get();
  return text === null ? headers : { ...headers, Authorization: `Bearer ${text}` };
}

export const get = (path) => asked(path, {});
export const getWithToken = (path) => asked(path, { headers: authorized() });
export const order = (path, body = {}) =>
  asked(path, {
    method: "POST",
    headers: authorized({ "Content-Type": "application/json" }),
    body: JSON.stringify(body),
  });

// The moments of the last day, oldest first, and each new one. After a lost connection nothing is missing: the stream
// continues after the last moment that was received, and if the gateway no longer has what followed, the history is
// loaded again.
export class Feed {
  constructor(onMoment, onHistory, onConnection) {
    this.onMoment = onMoment;
    this.onHistory = onHistory;
    this.onConnection = onConnection;
    this.moments = [];
    this.lastId = 0;
    this.newest = 0;
    this.loading = false;
    this.again = false;
    this.waiting = [];
    this.source = null;
  }

  async start() {
    await this.load();
    this.connect();
  }

  async load() {
    this.again = this.loading;
    if (this.loading) return;
    this.loading = true;
    for (;;) {
      try {
        const found = await get("/history");
        this.moments = [...found.minutes, ...found.newest];
        this.newest = found.newest.length;
        this.lastId = found.last_id;
        if (!this.again) break;
        this.again = false;
      } catch (refusal) {
        this.onConnection(`No connection. ${refusal.message}`, false);
        await new Promise((resolve) => setTimeout(resolve, AGAIN_MS));
      }
    }
    this.loading = false;
    this.onHistory();
    const waiting = this.waiting.splice(0);
    for (const moment of waiting) this.add(moment);
  }

  connect() {
    const source = new EventSource(`/api/v1/stream?after=${this.lastId}`);
    this.source = source;
    source.addEventListener("open", () => this.onConnection("Live.", true));
    source.addEventListener("moment", (event) => this.add(JSON.parse(event.data)));
    source.addEventListener("reset", () => this.load());
    source.addEventListener("error", () => {
      this.onConnection("The connection is lost: connecting again.", false);
      // A browser connects again itself unless the gateway refused the stream.
      if (source.readyState === EventSource.CLOSED) setTimeout(() => this.connect(), AGAIN_MS);
    });
  }

  add(moment) {
    if (this.loading) {
      this.waiting.push(moment);
      if (this.waiting.length > NEWEST_MOST) this.waiting.shift();
      return;
    }
    if (moment.id <= this.lastId) return;
    this.moments.push(moment);
    this.lastId = moment.id;
    this.newest += 1;
    this.onMoment(moment);
    // The history has the oldest of these as minutes.
    if (this.newest > NEWEST_MOST) this.load();
  }
}
