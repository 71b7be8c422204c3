" Ask ratelimitd from Neovim, whose own RPC it speaks:  :source check.vim  then  :call RateLimit('login', 'alice')
let s:daemon = sockconnect('pipe', $RATELIMIT_SOCKET, {'rpc': v:true})

function! RateLimit(policy, key) abort
  return rpcrequest(s:daemon, 'check', a:policy, a:key)
endfunction
