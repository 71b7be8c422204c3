package service

import "testing"

func TestWithoutAnotherNameTheServiceIsTheMainModule(t *testing.T) {
	none := func(string) (string, bool) { return "", false }
	if name, from := Of(nil, none, "example.com/shop"); name != "example.com/shop" || from != "the main module" {
		t.Fatalf("%q from %q", name, from)
	}
	if name, from := Of(nil, none, ""); name != "" || from != "" {
		t.Fatalf("%q from %q", name, from)
	}
	otel := func(variable string) (string, bool) { return "orders", variable == "OTEL_SERVICE_NAME" }
	if name, from := Of(nil, otel, "example.com/shop"); name != "orders" || from != "$OTEL_SERVICE_NAME" {
		t.Fatalf("%q from %q", name, from)
	}
}

func TestTheMainModuleOfThisProgramIsFound(t *testing.T) {
	if name := MainModule(); name != "github.com/ratelimitd/ratelimitd/clients/go" {
		t.Fatalf("%q", name)
	}
}
