// Numbers and times as text, each with its unit.

const NONE = "none";

function rounded(value, digits = 3) {
  if (value === 0) return "0";
  const size = Math.abs(value);
  if (size >= 1000) return Math.round(value).toLocaleString("en");
  return String(Number(value.toPrecision(digits)));
}

export function seconds(value) {
  if (value === null || value === undefined) return NONE;
  if (value === 0) return "0 s";
  if (value < 0.9995) return `${rounded(value * 1000)} ms`;
  if (value < 120) return `${rounded(value)} s`;
  const whole = Math.round(value);
  if (whole < 7200) return `${Math.floor(whole / 60)} min ${whole % 60} s`;
  return `${Math.floor(whole / 3600)} h ${Math.floor((whole % 3600) / 60)} min`;
}

export function bytes(value) {
  const units = ["B", "kB", "MB", "GB", "TB"];
  let unit = 0;
  while (value >= 999.5 && unit < units.length - 1) {
    value /= 1000;
    unit += 1;
  }
  return `${rounded(value)} ${units[unit]}`;
}

export const bytesPerSecond = (value) => `${bytes(value)}/s`;
export const eventsPerSecond = (value) => `${rounded(value)} events/s`;
const COMPACT = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });
// A rate beside an axis, where there is little room.
export const ratePerSecond = (value) => `${COMPACT.format(value)} /s`;
export const percent = (share) => `${rounded(share * 100)} %`;
export const usd = (value) => `${value.toFixed(value !== 0 && Math.abs(value) < 0.1 ? 4 : 2)} USD`;

// counted(1, "event") is "1 event", counted(2, "event") "2 events".
export function counted(number, word, several = `${word}s`) {
  return `${Number(number).toLocaleString("en")} ${number === 1 ? word : several}`;
}

const CLOCK = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit" });
const DAY = new Intl.DateTimeFormat("en-CA", { year: "numeric", month: "2-digit", day: "2-digit" });

// A time in seconds since 1970, as the time of the day; with its date if that is not today.
export function clock(wallSeconds) {
  const at = new Date(wallSeconds * 1000);
  const day = DAY.format(at);
  return day === DAY.format(new Date()) ? CLOCK.format(at) : `${day} ${CLOCK.format(at)}`;
}

// A time of the API as seconds since 1970.
export const wall = (text) => Date.parse(text) / 1000;
