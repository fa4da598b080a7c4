// The Vercel AI SDK with its provider for OpenAI-compatible servers.
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { Output, generateObject, generateText, stepCountIs, streamObject, streamText, tool } from "ai";
import {
  BREAK_S, FAKE, KEY, LONG, MAX_TOKENS, MODEL, Person, QUESTION, REAL, WEATHER, WEATHER_QUESTION, Weather, main,
  refusals,
} from "./cases.mjs";

globalThis.AI_SDK_LOG_WARNINGS = false;
const provider = (url = REAL, key = KEY) =>
  createOpenAICompatible({
    name: "headway", baseURL: url, apiKey: key, includeUsage: true, supportsStructuredOutputs: true,
  });
const ask = (options = {}) => ({
  model: provider()(MODEL), prompt: QUESTION, temperature: 0, maxOutputTokens: MAX_TOKENS, ...options,
});
const counts = (usage) => [usage.inputTokens, usage.outputTokens];

async function chat() {
  const { text, usage } = await generateText(ask());
  return { text, usage: counts(usage) };
}

async function stream() {
  const result = streamText(ask());
  let text = "";
  for await (const piece of result.textStream) text += piece;
  return { text, usage: counts(await result.usage) };
}

async function tools() {
  // Two steps: a call that must be made, and an answer to its result.
  const get_weather = tool({ description: "The weather.", inputSchema: Weather, execute: async () => WEATHER });
  const given = ask({
    prompt: WEATHER_QUESTION, tools: { get_weather }, maxOutputTokens: 200, stopWhen: stepCountIs(2),
    prepareStep: ({ stepNumber }) => ({ toolChoice: stepNumber === 0 ? "required" : "none" }),
    providerOptions: { headway: { parallel_tool_calls: false } },
  });
  const whole = await generateText(given);
  const calls = (result) => result.steps.flatMap((s) => s.toolCalls).map((c) => [c.toolName, c.input]);
  const streamed = streamText(given);
  const found = { steps: await streamed.steps };
  if (JSON.stringify(calls(found)) !== JSON.stringify(calls(whole))) throw new Error("streamed is not whole");
  return { calls: calls(whole), answer: whole.text };
}

async function structured() {
  const given = ask({ maxOutputTokens: 100 });
  const { output } = await generateText({ ...given, output: Output.object({ schema: Person }) });
  const { object } = await generateObject({ ...given, schema: Person });
  const streamed = streamObject({ ...given, schema: Person });
  for await (const _ of streamed.partialObjectStream);
  return [output, object, await streamed.object];
}

function errors() {
  return refusals(({ temperature, key, model }) =>
    generateText(ask({ model: provider(FAKE, key)(model), temperature, maxRetries: 0 })));
}

async function retry() {
  return (await generateText(ask({ model: provider(FAKE)(MODEL), maxRetries: 4 }))).text;
}

async function broken() {
  let text = "", error = null;
  const headers = { "x-request-timeout": BREAK_S };
  const given = ask({ model: provider(FAKE)(MODEL), maxOutputTokens: LONG, headers, onError: () => {} });
  for await (const part of streamText(given).fullStream) {
    if (part.type === "text-delta") text += part.text;
    if (part.type === "error") error = String(part.error?.message ?? part.error);
  }
  return { text, error };
}

await main(chat, stream, tools, structured, errors, retry, broken);
