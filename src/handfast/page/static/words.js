// Durations, counts, and the text of others.

const two = (number) => String(number).padStart(2, "0");

/** A duration in two units. The second unit has two digits, so that its width stays. */
export function span(seconds) {
  const s = Math.max(0, Math.floor(seconds));
  if (s < 60) return `${s} s`;
  if (s < 3600) return `${Math.floor(s / 60)} m ${two(s % 60)} s`;
  if (s < 86400) return `${Math.floor(s / 3600)} h ${two(Math.floor(s / 60) % 60)} m`;
  return `${Math.floor(s / 86400)} d ${two(Math.floor(s / 3600) % 24)} h`;
}

/** A mean: with a tenth of a second where it is short. */
export const brief = (seconds) => (seconds < 10 ? `${seconds.toFixed(1)} s` : span(seconds));

export const count = (number) => number.toLocaleString("en");

export const many = (number, noun, nouns = `${noun}s`) => `${count(number)} ${number === 1 ? noun : nouns}`;

/** The period of a rate: a minute, an hour, 10 seconds. */
export function period(seconds) {
  for (const [size, word, article] of [[86400, "day", "a"], [3600, "hour", "an"], [60, "minute", "a"], [1, "second", "a"]]) {
    if (seconds >= size && seconds % size === 0) {
      return seconds === size ? `${article} ${word}` : `${count(seconds / size)} ${word}s`;
    }
  }
  return `${Math.round(seconds * 1000)} ms`;
}

const date = (at, options) => new Date(at * 1000).toLocaleString("en-GB", options);
export const time = (at) => date(at, { hour: "2-digit", minute: "2-digit", second: "2-digit" });
/** A day and a time; of today the time. */
export const day = (at) => {
  const [on, today] = [at, Date.now() / 1000].map((moment) => date(moment, { day: "numeric", month: "short" }));
  return on === today ? time(at) : `${on}, ${time(at)}`;
};

/** Characters without a picture, or that turn the text around them. U+200D joins emoji and may stay. */
const ODD = /(?!\u200d)[\p{Cc}\p{Cf}\p{Zl}\p{Zp}\p{Co}\p{Cn}\p{Cs}]/u;

/** The text of others as an element: text nodes only, odd characters as escapes, in a direction of its own. */
export function shown(text) {
  const box = document.createElement("bdi");
  let plain = "";
  const flush = () => {
    if (plain) box.append(plain);
    plain = "";
  };
  for (const character of text || "an unnamed client") {
    if (ODD.test(character)) {
      flush();
      const code = character.codePointAt(0);
      const escape = document.createElement("span");
      escape.className = "escape";
      const [letter, digits] = code < 256 ? ["x", 2] : code < 65536 ? ["u", 4] : ["U", 8]; // as Python has them
      escape.textContent = `\\${letter}${code.toString(16).padStart(digits, "0")}`;
      box.append(escape);
    } else plain += character;
  }
  flush();
  return box;
}

/** The text of others where no element can be, such as the title of a window. */
export const plain = (text) => shown(text).textContent;

const bytes = (character) => [...new TextEncoder().encode(character)];

/** A text as one word of a shell: in single quotes; with odd characters as $'…' has them. */
export function quoted(text) {
  if (/^[\w@%+:,./][\w@%+=:,./-]*$/.test(text)) return text;
  if (![...text].some((character) => ODD.test(character))) return `'${text.replaceAll("'", "'\\''")}'`;
  const inside = [...text].map((character) => {
    if (ODD.test(character)) return bytes(character).map((byte) => `\\x${byte.toString(16).padStart(2, "0")}`).join("");
    return character === "'" || character === "\\" ? `\\${character}` : character;
  });
  return `$'${inside.join("")}'`;
}
