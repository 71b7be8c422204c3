package ratelimit

import (
	"encoding/json"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/tinylib/msgp/msgp"
)

// Named gives an inline policy a name: what answers, header fields and logs say in place of inline-224b... It is written
// like a policy's name, and does not change what counts together.
func Named(policy, name string) (string, error) {
	if !IsInline(policy) || inlineName(policy) != "" {
		return "", badArgument("the name %q is for an inline policy without a name: not for %s", name, policy)
	}
	if !IsPolicyName(name) {
		return "", badName(name)
	}

	settings := strings.TrimSpace(policy[1:])
	if settings != "}" {
		settings = "," + settings
	}
	return `{"name":"` + name + `"` + settings, nil
}

// ParsePolicy reads a policy's name, a limit such as "10/5s", or settings in braces, and refuses everything else.
func ParsePolicy(text string) (string, error) {
	switch {
	case IsInline(text):
		return text, checkSettings(text)
	case IsPolicyName(text):
		return text, nil
	case text == "":
		return "", badArgument("a limit has a policy, or settings of its own")
	}
	policy, err := ParseLimit(text)
	if err != nil {
		return "", badArgument("%q is neither a policy's name (letters, digits, '.', '_', '-') nor a limit: "+
			"write it like 10/5s, 100/minute or 5000/day", text)
	}
	return policy, nil
}

// IsPolicyName reports whether a text is written like the name of a policy.
func IsPolicyName(text string) bool { return policyName.MatchString(text) }

var policyName = regexp.MustCompile(`^[A-Za-z0-9._-]{1,64}$`)

func badName(name any) *RefusedError {
	return badArgument("the name of a policy has letters, digits, '.', '_' and '-': not %q", name)
}

// Most programs have a handful of inline policies. They are read once.
var (
	inlineNames  sync.Map
	nInlineNames atomic.Int64
)

// inlineName is the setting `name` of an inline policy, or "".
func inlineName(policy string) string {
	if !IsInline(policy) || !strings.Contains(policy, `"name"`) {
		return ""
	}
	if known, ok := inlineNames.Load(policy); ok {
		return known.(string)
	}

	var settings struct {
		Name string `json:"name"`
	}
	if json.Unmarshal([]byte(policy), &settings) != nil {
		return ""
	}
	if nInlineNames.Add(1) <= packedPoliciesMax {
		inlineNames.Store(policy, settings.Name)
	}
	return settings.Name
}

// without is a request for daemons that do not take some settings: its inline policies lack them.
func without(body []byte, unknown []string) []byte {
	if len(unknown) == 0 {
		return body
	}
	method, rest, _ := msgp.ReadStringBytes(body)
	value, _, err := msgp.ReadIntfBytes(rest)
	params, _ := value.([]any)
	if err != nil || len(params) == 0 {
		return body
	}

	drop := func(policy any) {
		settings, _ := policy.(map[string]any)
		for _, name := range unknown {
			delete(settings, name)
		}
	}
	drop(params[0])
	items, _ := params[0].([]any)
	for _, item := range items {
		if parts, _ := item.([]any); len(parts) > 0 {
			drop(parts[0])
		}
	}
	changed, err := msgp.AppendIntf(msgp.AppendString(nil, method), params)
	if err != nil {
		return body
	}
	return changed
}

// putNames replaces the names that the daemon has generated, inline- and 16 digits, by those that the policies of a
// decision have. Of several policies, Members say which is which.
func putNames(d *Decision, policies ...string) {
	names := map[string]string{}
	for i, policy := range policies {
		name := inlineName(policy)
		switch {
		case name == "":
		case len(d.Members) == len(policies):
			names[generatedName(d.Members[i].Of)], names[generatedName(d.Members[i].BoundBy)] = name, name
		case len(policies) == 1:
			names[generatedName(d.Of)], names[generatedName(d.BoundBy)] = name, name
		}
	}
	if len(names) == 0 {
		return
	}

	replace := func(of *string) {
		generated := generatedName(*of)
		if name := names[generated]; generated != "" && name != "" {
			*of = name + (*of)[len(generated):]
		}
	}
	replace(&d.Of)
	replace(&d.BoundBy)
	for i := range d.Members {
		replace(&d.Members[i].Of)
		replace(&d.Members[i].BoundBy)
	}
}

// generatedName is the inline- and 16 digits at the beginning of a limit's name, or "".
func generatedName(of string) string {
	whole, _, _ := strings.Cut(of, "/")
	if !generated.MatchString(whole) {
		return ""
	}
	return whole
}

var generated = regexp.MustCompile(`^inline-[0-9a-f]{16}$`)
