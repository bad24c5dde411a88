"""The Lua script that selects a Model by the member `model` of a body, for OpenAI's API. Pure.

    /openai/v1/…                         a Model of the namespace default
    /namespaces/NAMESPACE/openai/v1/…    a Model of the namespace

The script holds the body until it is complete, and reads only the members of its outer object. A loop over bytes takes
about the same time for every body, so none holds up Envoy's one worker for long: 10 MB take some 30 ms. Errors inside
nested values are left to the model server, which gets the body unchanged. The bodies of all requests are limited
together; the state of a script is that of Envoy's one worker.
"""

from __future__ import annotations

from typing import Final

from clusters.base.sizes import format_size
from clusters.net.language_models import LARGEST_BODY, MODEL_NOT_FOUND, MOST_MEMBERS, NO_MODEL

OPENAI_PATH: Final = "/openai/v1"
OPENAI_SCRIPT_NAME: Final = "openai"
MODEL_LIST_DOMAIN: Final = ".models.gateway.knodel.internal"
"""The Hosts of the lists of language models, by namespace."""
REFUSED: Final = "knodel-internal-refused"
"""A header of requests that the script refuses. A local reply's condition can match a header, but no metadata."""
MODEL_KEY: Final = "model"
PARAM_KEY: Final = "param"
CODE_KEY: Final = "code"
"""Keys of the request's metadata, for the error response."""

_NOT_JSON: Final = "the body is not a JSON object"
_TWICE: Final = "the body has the member `model` twice"
_TOO_MANY: Final = f"the body has more than {MOST_MEMBERS} members"
_NO_MODEL: Final = "the body needs the member `model`: the name of a model"
_ENCODED: Final = "a compressed body is not supported here: send it without Content-Encoding"
TOO_LARGE: Final = f"the request body is larger than the limit of {format_size(LARGEST_BODY)}"
MOST_HELD: Final = 1024 * 1024 * 1024
"""Bytes of the bodies of all requests in progress. A body may stay in Envoy until its model reads it."""
_UNCOUNTED: Final = 128 * 1024  # bytes, which a request at any path may take (`GatewayLimits.buffer_bytes`)
_COLLECTION_PAUSE: Final = 100  # ms between collections of ended requests, each of which takes up to some ms
_POST: Final = "send a body with the member `model` by POST"
_FULL: Final = "the gateway holds too many request bodies: try again"
_LONGEST_MEMBER: Final = 36  # bytes of "model" as a JSON string, each letter escaped, and a reserve
_LONGEST_NAME: Final = 2048  # bytes of a name with its adapter as a JSON string

_UNESCAPE: Final = r"""
local ESCAPES = {b = "\b", f = "\f", n = "\n", r = "\r", t = "\t", ["/"] = "/", ["\\"] = "\\", ['"'] = '"'}

local function unescape(text)
  if not text:find("\\", 1, true) then return text end
  text = text:gsub("\\u00([0-7]%x)", function(digits)
    local letter = string.char(tonumber(digits, 16))
    return letter == "\\" and "\\\\" or letter
  end)
  return (text:gsub("\\(.)", function(letter) return ESCAPES[letter] or "?" end))
end
"""

_SCAN: Final = rf"""
local function past_string(text, i)
  local byte = string.byte
  while true do
    local c = byte(text, i)
    if c == nil then return nil end
    if c == 34 then return i + 1 end
    i = i + (c == 92 and 2 or 1)
  end
end

local function scan(text)
  local byte = string.byte
  local i, depth, at_name, name, model, times, members = 1, 0, false, nil, nil, 0, 0
  while true do
    local c = byte(text, i)
    if c == nil then break end
    if c == 34 then
      if depth == 0 then return nil, "{_NOT_JSON}" end
      local after = past_string(text, i + 1)
      if after == nil then return nil, "{_NOT_JSON}" end
      if depth == 1 then
        local size = after - i
        if at_name then
          name = size <= {_LONGEST_MEMBER} and unescape(text:sub(i + 1, after - 2)) or ""
          at_name = false
        elseif name == "model" then
          model = size <= {_LONGEST_NAME} and unescape(text:sub(i + 1, after - 2)) or ""
        end
      end
      i = after
    else
      if c == 123 or c == 91 then
        if depth == 0 and (c == 91 or name ~= nil) then return nil, "{_NOT_JSON}" end
        depth = depth + 1
        if depth == 1 then at_name, name = true, "" end
      elseif c == 125 or c == 93 then
        depth = depth - 1
        if depth < 0 or (depth == 0 and c == 93) then return nil, "{_NOT_JSON}" end
      elseif depth == 1 then
        if c == 58 then
          if name == "model" then times = times + 1 end
          members = members + 1
          if times > 1 then return nil, "{_TWICE}", "model" end
          if members > {MOST_MEMBERS} then return nil, "{_TOO_MANY}" end
        elseif c == 44 then
          at_name, name = true, ""
        end
      elseif depth == 0 and c ~= 32 and c ~= 10 and c ~= 13 and c ~= 9 then
        return nil, "{_NOT_JSON}"
      end
      i = i + 1
    end
  end
  if depth ~= 0 or name == nil then return nil, "{_NOT_JSON}" end
  if model == nil then return nil, "{_NO_MODEL}", "model", "{NO_MODEL}" end
  return model
end
"""


_HOLD: Final = f"""
-- The bytes of each request, until Envoy ends its handle. `total` also has those ended since the last collection.
local held, total, collected_at = setmetatable({{}}, {{__mode = "k"}}), 0, 0

local function hold(handle, size)
  if size <= {_UNCOUNTED} then return true end
  local now = tonumber(handle:timestamp())
  if total + size > {MOST_HELD} and now - collected_at >= {_COLLECTION_PAUSE} then
    collectgarbage()
    collected_at, total = now, 0
    for _, one in pairs(held) do total = total + one end
  end
  if total + size > {MOST_HELD} then return false end
  held[handle], total = size, total + size
  return true
end

local function body_of(handle, headers)
  if headers:get(":method") ~= "POST" then return refuse(handle, 405, "{_POST}") end
  local encoding = headers:get("content-encoding")
  if encoding ~= nil and encoding ~= "" and encoding:lower() ~= "identity" then
    return refuse(handle, 415, "{_ENCODED}")
  end
  local size = tonumber(headers:get("content-length") or "") or {LARGEST_BODY}
  if size > {LARGEST_BODY} then return refuse(handle, 413, "{TOO_LARGE}") end
  if not hold(handle, size) then return refuse(handle, 503, "{_FULL}") end
  local body = handle:body()
  local received = body and body:length() or 0
  if held[handle] then held[handle], total = received, total - size + received end
  if received == 0 then return refuse(handle, 400, "{_NOT_JSON}") end
  return body
end
"""


def openai_script(own_metadata: str, original_path: str, path_form_domain: str, default_namespace: str) -> str:
    """Return the script. The arguments are names of `clusters.gateway.route_config`."""
    parts = (
        _UNESCAPE,
        _SCAN,
        _refuse(own_metadata),
        _HOLD,
        _select(original_path, path_form_domain, default_namespace),
    )
    return "".join(parts)


def _refuse(own_metadata: str) -> str:
    return f"""
local function remember(handle, key, value)
  if value ~= nil then handle:streamInfo():dynamicMetadata():set("{own_metadata}", key, value) end
end

local function refuse(handle, status, message, param, code)
  remember(handle, "{PARAM_KEY}", param)
  remember(handle, "{CODE_KEY}", code)
  handle:headers():replace("{REFUSED}", "1")
  handle:respond({{[":status"] = tostring(status)}}, message)
end

local function shown(model)
  return (model:sub(1, 128):gsub("[^ -~]", "?"))
end
"""


def _select(original_path: str, path_form_domain: str, default_namespace: str) -> str:
    return f"""
local function lead(handle, path, host, model)
  local headers = handle:headers()  -- an object of a former step ended when the script waited for the body
  local asked = headers:get(":path"):match("^[^?]*")
  remember(handle, "path", asked)
  remember(handle, "{MODEL_KEY}", model)
  headers:add("{original_path}", asked)
  headers:replace(":path", path)
  headers:replace(":authority", host)
  handle:clearRouteCache()
end

function envoy_on_request(handle)
  local headers = handle:headers()
  local path = headers:get(":path")
  local namespace, rest = path:match("^/namespaces/([a-z0-9-]+)({OPENAI_PATH}.*)$")
  namespace, rest = namespace or "{default_namespace}", rest or path
  if rest:match("^{OPENAI_PATH}/models$") or rest:match("^{OPENAI_PATH}/models[/?]") then
    local asked = rest:match("^{OPENAI_PATH}/models/([^?]*)") or ""
    return lead(handle, rest, namespace .. "{MODEL_LIST_DOMAIN}", shown(asked))
  end
  local body = body_of(handle, headers)
  if body == nil then return end
  local size = body:length()
  local model, problem, param, code = scan(body:getBytes(0, size))
  if size > {_UNCOUNTED} then collectgarbage() end  -- of the copy of the body
  if model == nil then return refuse(handle, 400, problem, param, code) end
  local name, separator, adapter = model:match("^([a-z0-9-]+)(:?)(.*)$")
  if name == nil or #name > 63 or (separator == "") ~= (adapter == "") then
    return refuse(handle, 404, "no model '" .. shown(model) .. "'", "model", "{MODEL_NOT_FOUND}")
  end
  lead(handle, rest, name .. "." .. namespace .. "{path_form_domain}", name)
end
"""
