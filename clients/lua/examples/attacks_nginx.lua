-- What the locations of attacks.conf call.

mistake = os.getenv("MISTAKE")

-- by the user; without one by the address; an empty name is no key
function by_user(user_of)
    return function(request)
        local user = user_of()
        if user then return request:composite("u", user) end
        return request:composite("i", request:part("ip"))
    end
end
-- As a router would name it; nil: this path has no limit, and limit{} refuses to go on without a name.
local NAMES = {
    ["/attack/names/method"] = "/attack/names/method", ["/attack/names/both"] = "GET,POST /attack/names/both",
    ["/attack/names/shared-a"] = "shared", ["/attack/names/shared-b"] = "shared",
}
for _, path in ipairs { "factory/a", "factory/b", "lambda/a", "lambda/b", "mounted-a/x", "mounted-b/x" } do
    NAMES["/attack/names/" .. path] = "GET /attack/names/" .. path
end
function endpoint_here()
    if ngx.var.uri:find("^/attack/names/item/[^/]+$") then return "GET /attack/names/item/{id}" end
    local name = NAMES[ngx.var.uri]
    return name == "/attack/names/method" and (ngx.req.get_method() == "POST" and "POST " or "GET ") .. name or name
end
