module github.com/ratelimitd/ratelimitd/clients/go/benchmark

go 1.24.0

require (
	github.com/go-redis/redis_rate/v10 v10.0.1
	github.com/ratelimitd/ratelimitd/clients/go v0.1.0
	github.com/redis/go-redis/v9 v9.14.0
)

require (
	github.com/cespare/xxhash/v2 v2.3.0 // indirect
	github.com/dgryski/go-rendezvous v0.0.0-20200823014737-9f7001d12a5f // indirect
	github.com/philhofer/fwd v1.2.0 // indirect
	github.com/tinylib/msgp v1.6.5 // indirect
)

replace github.com/ratelimitd/ratelimitd/clients/go => ../
