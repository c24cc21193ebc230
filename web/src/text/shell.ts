/** Words of commands to paste: what comes from an address or a name is one word in them, whatever it holds. */

const PLAIN = /^[A-Za-z0-9_@%+=:,./-]+$/;

export function quoted(word: string): string {
  return PLAIN.test(word) ? word : `'${word.replaceAll("'", String.raw`'\''`)}'`;
}

/** A command in which every value that is put in is one word. */
export function sh(words: TemplateStringsArray, ...values: (string | number)[]): string {
  return words.reduce((text, next, index) => text + quoted(String(values[index - 1])) + next);
}

/** A path of the API in which every value that is put in is one part of it. */
export function path(parts: TemplateStringsArray, ...values: (string | number)[]): string {
  return parts.reduce((text, next, index) => text + encodeURIComponent(String(values[index - 1])) + next);
}
