-- The health of a Pause for Argo CD: healthy once no deletion in its scope is on its way.
local status = obj.status or {}
if status.observedGeneration ~= obj.metadata.generation then
  return { status = "Progressing", message = "The leader has not seen the pause as it is." }
end
if status.state == "Effective" then
  return { status = "Healthy", message = status.scope or "" }
end
if status.state == "Expired" then
  return { status = "Degraded", message = "The pause has ended. Remove it from the repository, or it is created again." }
end
return { status = "Progressing", message = status.message or "" }
