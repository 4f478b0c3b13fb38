// Scales of plots, and their export.

export interface Series {
  name: string;
  /** A text colour of the page, by its variable. */
  colour: string;
  /** Of a line: time and value. */
  points: [number, number][];
  /** Tells a line from the others without its colour. */
  dash?: string;
}

/** The newest points of each series: of all together not more than `most`. */
export const newest = (all: Series[], most: number): Series[] =>
  all
    .slice(0, most)
    .map((series) => ({ ...series, points: series.points.slice(-Math.max(1, Math.floor(most / all.length))) }));

/** Round steps that cover a range: 1, 2 or 5 times a power of ten. */
export function ticks(from: number, to: number, most = 5): number[] {
  const range = Math.max(to - from, 1e-9);
  const power = 10 ** Math.floor(Math.log10(range / most));
  const step = [1, 2, 5, 10].map((factor) => factor * power).find((step) => range / step <= most)!;
  const found: number[] = [];
  for (let at = Math.ceil(from / step) * step; at <= to + step / 1e6; at += step)
    found.push(Number(at.toPrecision(12)));
  return found;
}

export function save(name: string, data: Blob): void {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(data);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}

const KEPT = [
  "fill",
  "stroke",
  "stroke-width",
  "stroke-dasharray",
  "opacity",
  "font-size",
  "font-family",
  "text-anchor",
];

/** The picture as a file that needs no style sheet. */
export function svgText(svg: SVGSVGElement): string {
  const copy = svg.cloneNode(true) as SVGSVGElement;
  const originals = [svg, ...svg.querySelectorAll("*")];
  [copy, ...copy.querySelectorAll("*")].forEach((element, at) => {
    const style = getComputedStyle(originals[at]!);
    for (const name of KEPT) element.setAttribute(name, style.getPropertyValue(name));
    element.removeAttribute("class");
  });
  const { width, height } = svg.viewBox.baseVal;
  copy.setAttribute("xmlns", "http://www.w3.org/2000/svg");
  copy.setAttribute("width", `${width}`);
  copy.setAttribute("height", `${height}`);
  const back = document.createElementNS("http://www.w3.org/2000/svg", "rect");
  back.setAttribute("width", "100%");
  back.setAttribute("height", "100%");
  back.setAttribute("fill", getComputedStyle(document.body).backgroundColor);
  copy.prepend(back);
  return new XMLSerializer().serializeToString(copy);
}

export async function png(svg: SVGSVGElement): Promise<Blob> {
  const { width, height } = svg.viewBox.baseVal;
  const url = URL.createObjectURL(new Blob([svgText(svg)], { type: "image/svg+xml" }));
  try {
    const image = new Image();
    image.src = url;
    await image.decode();
    const canvas = Object.assign(document.createElement("canvas"), { width: width * 2, height: height * 2 });
    canvas.getContext("2d")!.drawImage(image, 0, 0, canvas.width, canvas.height);
    return await new Promise((resolve, reject) =>
      canvas.toBlob((blob) => (blob ? resolve(blob) : reject(new Error("The picture is empty."))), "image/png"),
    );
  } finally {
    URL.revokeObjectURL(url);
  }
}
