module github.com/ratelimitd/ratelimitd/clients/go/rlotel

go 1.24.0

require (
	github.com/ratelimitd/ratelimitd/clients/go v0.1.0
	go.opentelemetry.io/otel v1.37.0
	go.opentelemetry.io/otel/trace v1.37.0
)

require (
	github.com/philhofer/fwd v1.2.0 // indirect
	github.com/tinylib/msgp v1.6.5 // indirect
)

replace github.com/ratelimitd/ratelimitd/clients/go => ../
