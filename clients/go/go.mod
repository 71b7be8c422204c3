module github.com/ratelimitd/ratelimitd/clients/go

go 1.24.0

require (
	github.com/dunglas/httpsfv v1.1.2
	github.com/tinylib/msgp v1.6.5
	go.uber.org/goleak v1.3.0
)

require github.com/philhofer/fwd v1.2.0 // indirect
