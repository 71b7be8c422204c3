package rlotel_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"reflect"
	"testing"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	ratelimit "github.com/ratelimitd/ratelimitd/clients/go"
	"github.com/ratelimitd/ratelimitd/clients/go/ratelimittest"
	"github.com/ratelimitd/ratelimitd/clients/go/rlhttp"
	"github.com/ratelimitd/ratelimitd/clients/go/rlotel"
)

type span struct {
	noop.Span
	got map[string]string
}

func (s span) IsRecording() bool { return true }

func (s span) SetAttributes(all ...attribute.KeyValue) {
	for _, one := range all {
		s.got[string(one.Key)] = one.Value.AsString()
	}
}

func TestTheSpanOfARequestHasTheDecision(t *testing.T) {
	daemon := ratelimittest.Start(t, "policies: {one: {algorithm: fixed_window, limit: 1, window: 1m}, other: {algorithm: fixed_window, limit: 9, window: 1m}}")
	client := daemon.Client(rlotel.Spans())
	limit := rlhttp.Limit(client, rlhttp.Policy("one"), rlhttp.And(rlhttp.Policy("other")))

	for _, want := range []string{"allowed", "denied"} {
		seen := span{got: map[string]string{}}
		request := httptest.NewRequest("GET", "/", nil)
		request = request.WithContext(trace.ContextWithSpan(request.Context(), seen))
		limit(http.NotFoundHandler()).ServeHTTP(httptest.NewRecorder(), request)
		all := map[string]string{"ratelimit.policy": "one", "ratelimit.result": want, "ratelimit.source": "memory"}
		if !reflect.DeepEqual(seen.got, all) {
			t.Error(fmt.Sprint(seen.got))
		}
	}

	fake := ratelimittest.NewFake()
	fake.Unavailable(ratelimit.KindUnreachable)
	seen := span{got: map[string]string{}}
	request := httptest.NewRequest("GET", "/", nil)
	request = request.WithContext(trace.ContextWithSpan(request.Context(), seen))
	rlhttp.Limit(fake.Client(rlotel.Spans()), rlhttp.Policy("one"))(http.NotFoundHandler()).ServeHTTP(httptest.NewRecorder(), request)
	if len(seen.got) != 0 {
		t.Error("without a decision there is nothing to write: ", seen.got)
	}
}
