// Texts for numbers, and the decoding of the API's JSON. 64-bit numbers arrive as texts there.

const whole = new Intl.NumberFormat("en");
const BYTES = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
const DURATIONS = [["d", 86400e9], ["h", 3600e9], ["min", 60e9], ["s", 1e9], ["ms", 1e6], ["µs", 1e3]];

export const count = (number) => whole.format(Math.round(number));

export function short(number) {
  if (number >= 1e9) return `${(number / 1e9).toPrecision(3)} G`;
  if (number >= 1e6) return `${(number / 1e6).toPrecision(3)} M`;
  if (number >= 1e4) return `${(number / 1e3).toPrecision(3)} k`;
  return number < 10 && !Number.isInteger(number) ? number.toFixed(1) : count(number);
}

export function bytes(number) {
  let unit = 0;
  while (number >= 1024 && unit < BYTES.length - 1) {
    number /= 1024;
    ++unit;
  }
  return `${unit === 0 || number >= 100 ? Math.round(number) : number.toPrecision(3)} ${BYTES[unit]}`;
}

export function duration(ns) {
  const [unit, size] = DURATIONS.find(([, length]) => ns >= length) ?? ["ns", 1];
  const number = ns / size;
  return `${number >= 100 || Number.isInteger(number) ? Math.round(number) : number.toPrecision(3)} ${unit}`;
}

export const words = (name) => name.toLowerCase().replaceAll("_", " ");

// A list of {name, number | flag | text} becomes an object.
export function statistics(list) {
  return Object.fromEntries(list.map((one) => [
    one.name, "number" in one ? Number(one.number) : "flag" in one ? one.flag : one.text ?? "",
  ]));
}

// A StatisticsTable becomes an array of objects.
export function tableRows(table) {
  const TEXT = "TEXT";
  const columns = table?.columns ?? [];
  return (table?.rows ?? []).map((row) => {
    const result = {};
    let number = 0;
    let text = 0;
    for (const {name, kind} of columns) {
      result[name] = kind === TEXT ? row.texts[text++] : Number(row.numbers[number++]);
    }
    return result;
  });
}
