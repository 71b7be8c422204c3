-- Ask ratelimitd from Neovim's Lua, whose own RPC it speaks.
local daemon = vim.fn.sockconnect("pipe", vim.env.RATELIMIT_SOCKET, { rpc = true })
local decision = vim.rpcrequest(daemon, "check", "login", "alice")
print(decision.allowed and "allowed" or ("denied, retry in " .. decision.retry_after_ms .. " ms"))
