module github.com/ratelimitd/ratelimitd/clients/go/rlgrpc

go 1.24.0

require (
	github.com/ratelimitd/ratelimitd/clients/go v0.1.0
	google.golang.org/genproto/googleapis/rpc v0.0.0-20250707201910-8d1bb00bc6a7
	google.golang.org/grpc v1.75.1
	google.golang.org/protobuf v1.36.6
)

require (
	github.com/philhofer/fwd v1.2.0 // indirect
	github.com/tinylib/msgp v1.6.5 // indirect
	golang.org/x/net v0.41.0 // indirect
	golang.org/x/sys v0.33.0 // indirect
	golang.org/x/text v0.26.0 // indirect
)

replace github.com/ratelimitd/ratelimitd/clients/go => ../
