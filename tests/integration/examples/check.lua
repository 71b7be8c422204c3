-- Ask ratelimitd from Neovim's Lua, whose own RPC it speaks.
local daemon = vim.fn.sockconnect("pipe", vim.env.RATELIMIT_SOCKET, { rpc = true })
local decision = vim.rpcrequest(daemon, "check", "login", "alice")
if not decision.allowed then
  print("denied, retry in " .. decision.retry_after_ms .. " ms")
elseif decision.delay_ms then
  print("allowed, go ahead in " .. decision.delay_ms .. " ms")
else
  print("allowed")
end
