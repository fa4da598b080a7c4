// What the Node programs share: what is asked, and how they report.
import { z } from "zod";

export const REAL = process.env.HEADWAY_REAL;
export const FAKE = process.env.HEADWAY_FAKE;
export const KEY = "sesame";
export const MODEL = "default";
export const QUESTION = "Name three fruits.";
export const MAX_TOKENS = 40;
export const WEATHER_QUESTION = "What will the weather be like in Paris?";
export const WEATHER = "Sunny, 21 degrees.";
export const BREAK_S = "0.6";
export const LONG = 400;

export const Weather = z.object({ city: z.enum(["Paris", "Rome"]), days: z.number().int().min(1).max(14) });
export const Person = z.object({
  name: z.string().max(12),
  age: z.number().int().min(0).max(120),
  colour: z.enum(["red", "green", "blue"]),
});

export async function refusals(ask) {
  const statuses = [];
  for (const wrong of [{ temperature: 3 }, { key: "wrong" }, { model: "no-such" }]) {
    try {
      await ask({ temperature: 0, key: KEY, model: MODEL, ...wrong });
    } catch (error) {
      statuses.push(error.status ?? error.statusCode ?? String(error));
    }
  }
  return statuses;
}

export async function main(...cases) {
  const results = {};
  for (const one of cases) {
    if (!process.argv.includes(one.name)) continue;
    try {
      results[one.name] = { value: await one() };
    } catch (error) {
      results[one.name] = { failed: `${error.stack}\n${error.responseBody ?? ""}` };
    }
  }
  console.log(JSON.stringify(results));
}
