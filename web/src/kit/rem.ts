/** The size of the reader's text: what a script measures in pixels grows with it, as all that CSS measures does. */

const USUAL = 16;

/** CSS pixels of the browser's own size of text. */
export function rem(): number {
  return parseFloat(getComputedStyle(document.documentElement).fontSize) || USUAL;
}

/** Pixels at the usual size of text, at the reader's. */
export function scaled(pixels: number): number {
  return (pixels * rem()) / USUAL;
}

/** How high a row of a list is. */
export function rowHeight(): number {
  return parseFloat(getComputedStyle(document.documentElement).getPropertyValue("--row")) * rem();
}
