-- Health of Models, WarmPools and EventSources for Argo CD: an administrator adds argocd-cm.yaml, which has this script for
-- each kind. A rollout that was rolled back is Degraded, since the version of the repository does not serve.
local function health(status, message)
  return {status = status, message = message}
end

local generation = obj.metadata.generation
local status = obj.status
if status == nil or (status.observedGeneration ~= nil and status.observedGeneration < generation) then
  return health("Progressing", "the change has not been observed yet")
end

local ready = nil
for _, condition in ipairs(status.conditions or {}) do
  if condition.type == "Ready" then
    ready = condition
  end
end
if ready == nil then
  return health("Progressing", "there is no condition Ready yet")
end

local message = ready.message
if message == nil or message == "" then
  message = ready.reason
end
if ready.status == "False" then
  if ready.reason == "Recovering" then
    return health("Progressing", message)
  end
  return health("Degraded", message)
end
if ready.status == "Unknown" then
  if ready.reason == "SecretForbidden" then -- events are accepted; the controller may not check the key
    return health("Healthy", message)
  end
  return health("Progressing", message)
end

local rollout = status.rollout
if rollout ~= nil then
  local why = (rollout.reasons or {})[1] or rollout.phase
  if rollout.phase == "Paused" then
    return health("Suspended", why)
  end
  if rollout.phase == "Progressing" then
    return health("Progressing", why)
  end
  if (rollout.phase == "RolledBack" or rollout.phase == "Failed") and rollout.candidate == status.latestCreatedRevision then
    return health("Degraded", why)
  end
end
return health("Healthy", message)
