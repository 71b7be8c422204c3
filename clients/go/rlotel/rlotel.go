// Package rlotel writes what limits decide about a request into its span of OpenTelemetry.
//
//	client := ratelimit.New(rlotel.Spans())
//
// The span of the request's context gets ratelimit.policy, ratelimit.result (`allowed`, `denied`) and ratelimit.source, of the
// decision that the handler gets. Without a decision it gets none.
package rlotel

import (
	"context"
	"strings"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	ratelimit "github.com/ratelimitd/ratelimitd/clients/go"
)

// Spans is the option for a client whose middleware has spans.
func Spans() ratelimit.ClientOption { return ratelimit.WithOnRequest(annotate) }

func annotate(ctx context.Context, decision ratelimit.Decision) {
	span := trace.SpanFromContext(ctx)
	if !span.IsRecording() {
		return
	}
	policy, result := decision.Of, "denied"
	if decision.BoundBy != "" {
		policy = decision.BoundBy
	}
	if decision.Allowed {
		result = "allowed"
	}
	policy, _, _ = strings.Cut(policy, "/")
	span.SetAttributes(attribute.String("ratelimit.policy", policy), attribute.String("ratelimit.result", result),
		attribute.String("ratelimit.source", decision.Source))
}
