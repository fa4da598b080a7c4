// openai-node, as its documentation has it.
import OpenAI from "openai";
import { zodFunction, zodResponseFormat } from "openai/helpers/zod";
import {
  BREAK_S, FAKE, KEY, LONG, MAX_TOKENS, MODEL, Person, QUESTION, REAL, WEATHER, WEATHER_QUESTION, Weather, main,
  refusals,
} from "./cases.mjs";

const client = (url = REAL, options = {}) => new OpenAI({ baseURL: url, apiKey: KEY, ...options });
const ASK = { model: MODEL, messages: [{ role: "user", content: QUESTION }], temperature: 0, max_tokens: MAX_TOKENS };
const counts = (usage) => [usage.prompt_tokens, usage.completion_tokens];

async function chat() {
  const answer = await client().chat.completions.create(ASK);
  return { text: answer.choices[0].message.content, usage: counts(answer.usage) };
}

async function stream() {
  let text = "", usage;
  const given = { ...ASK, stream: true, stream_options: { include_usage: true } };
  for await (const chunk of await client().chat.completions.create(given)) {
    text += chunk.choices[0]?.delta.content ?? "";
    usage = chunk.usage ?? usage;
  }
  return { text, usage: counts(usage) };
}

async function helper() {
  const events = client().chat.completions.stream({ ...ASK, stream_options: { include_usage: true } });
  let text = "";
  events.on("content", (delta) => { text += delta; });
  const answer = await events.finalChatCompletion();
  if (text !== answer.choices[0].message.content) throw new Error("pieces are not the whole");
  return { text, usage: counts(answer.usage) };
}

async function tools() {
  const tool = zodFunction({ name: "get_weather", parameters: Weather, function: () => WEATHER });
  const messages = [{ role: "user", content: WEATHER_QUESTION }];
  const common = { model: MODEL, temperature: 0, max_tokens: 200, parallel_tool_calls: false };
  const given = { ...common, messages, tools: [tool], tool_choice: "required" };
  const message = (await client().chat.completions.parse(given)).choices[0].message;
  Weather.parse(message.tool_calls[0].function.parsed_arguments);
  const streamed = await client().chat.completions.stream(given).finalMessage();
  const calls = (m) => m.tool_calls.map((c) => [c.function.name, c.function.arguments]);
  if (JSON.stringify(calls(streamed)) !== JSON.stringify(calls(message))) throw new Error("streamed is not whole");
  const texts = new Set();
  for (const said of [message, streamed]) {
    const more = [said, { role: "tool", tool_call_id: said.tool_calls[0].id, content: WEATHER }];
    const next = { ...common, messages: [...messages, ...more], tools: [tool], tool_choice: "none" };
    texts.add((await client().chat.completions.create(next)).choices[0].message.content);
  }
  if (texts.size !== 1) throw new Error("the same history, another answer");
  return { calls: calls(message), answer: [...texts][0] };
}

async function runner() {
  // The package calls the function and sends its result back by itself; a named choice is for the first turn only.
  const tool = {
    type: "function",
    function: {
      name: "get_weather", parameters: { type: "object", properties: {} }, function: () => WEATHER, parse: JSON.parse,
    },
  };
  const given = {
    model: MODEL, messages: [{ role: "user", content: WEATHER_QUESTION }], temperature: 0, max_tokens: 60,
    tools: [tool], tool_choice: { type: "function", function: { name: "get_weather" } },
  };
  const run = client().chat.completions.runTools(given, { maxChatCompletions: 2 });
  const results = [];
  run.on("functionToolCallResult", (result) => results.push(result));
  await run.done();
  return results;
}

async function structured() {
  const given = { ...ASK, max_tokens: 100, response_format: zodResponseFormat(Person, "person") };
  const whole = (await client().chat.completions.parse(given)).choices[0].message.parsed;
  const streamed = (await client().chat.completions.stream(given).finalChatCompletion()).choices[0].message.parsed;
  return [whole, streamed];
}

function errors() {
  return refusals(({ temperature, key, model }) =>
    client(FAKE, { apiKey: key }).chat.completions.create({ ...ASK, temperature, model }));
}

async function retry() {
  return (await client(FAKE, { maxRetries: 4 }).chat.completions.create(ASK)).choices[0].message.content;
}

async function broken() {
  let text = "";
  try {
    const headers = { "x-request-timeout": BREAK_S };
    const given = { ...ASK, max_tokens: LONG, stream: true };
    for await (const chunk of await client(FAKE).chat.completions.create(given, { headers })) {
      text += chunk.choices[0]?.delta.content ?? "";
    }
  } catch (error) {
    return { text, error: String(error) };
  }
  return { text, error: null };
}

async function resume() {
  const asked = client(FAKE);
  const given = { ...ASK, stream: true, stream_options: { resumable: true } };
  const first = [];
  for await (const chunk of await asked.chat.completions.create(given)) {
    first.push(chunk);
    if (first.length === 10) break;
  }
  const name = first[0].id;
  const rest = [], again = [];
  for await (const chunk of await asked.get(`/streams/${name}?after=10`, { stream: true })) rest.push(chunk);
  const headers = { "last-event-id": `${name}-10` };
  for await (const chunk of await asked.chat.completions.create(given, { headers })) again.push(chunk);
  if (JSON.stringify(again) !== JSON.stringify(rest)) throw new Error("the two ways differ");
  return [...first, ...rest].map((chunk) => chunk.choices[0].delta.content ?? "").join("");
}

async function completion() {
  const given = { model: MODEL, prompt: "Once", max_tokens: 20, temperature: 0 };
  const answer = await client().completions.create(given);
  let streamed = "";
  for await (const chunk of await client().completions.create({ ...given, stream: true })) {
    streamed += chunk.choices[0].text;
  }
  return { text: answer.choices[0].text, streamed };
}

async function models() {
  const found = [];
  for await (const model of client().models.list()) found.push(model.id);
  return found;
}

await main(chat, stream, helper, tools, runner, structured, errors, retry, broken, resume, completion, models);
