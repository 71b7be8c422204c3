package io.ratelimitd.spring;

import java.util.Arrays;
import java.util.Collection;
import java.util.HashSet;
import java.util.Set;
import org.springframework.expression.ParseException;
import org.springframework.expression.spel.SpelNode;
import org.springframework.expression.spel.ast.CompoundExpression;
import org.springframework.expression.spel.ast.MethodReference;
import org.springframework.expression.spel.ast.Projection;
import org.springframework.expression.spel.ast.PropertyOrFieldReference;
import org.springframework.expression.spel.ast.Selection;
import org.springframework.expression.spel.ast.VariableReference;
import org.springframework.expression.spel.standard.SpelExpression;
import org.springframework.expression.spel.standard.SpelExpressionParser;

/**
 * Parses expressions when the application starts, and refuses those that can only fail: a misspelt variable would be
 * null, and a key that is null means no limit.
 */
final class Expressions {
    private static final SpelExpressionParser PARSER = new SpelExpressionParser();

    private final Class<? extends CallContext> context;
    private final Set<String> variables;

    Expressions(Class<? extends CallContext> context, Collection<String> variables) {
        this.context = context;
        this.variables = new HashSet<>(variables);
        this.variables.addAll(Set.of("root", "this"));
    }

    /** @param where for the message: what the expression belongs to */
    SpelExpression parse(String text, String where) {
        try {
            SpelExpression expression = (SpelExpression) PARSER.parseExpression(text);
            check(expression.getAST(), true);
            return expression;
        } catch (ParseException | IllegalArgumentException e) {
            throw new IllegalStateException(where + ": the expression `" + text + "` is not valid: " + e.getMessage(), e);
        }
    }

    private void check(SpelNode node, boolean isOfContext) {
        if (node instanceof VariableReference && !variables.contains(node.toStringAST().substring(1)))
            throw new IllegalArgumentException("there is no variable " + node.toStringAST());
        if (isOfContext && node instanceof PropertyOrFieldReference property && !has("get" + property.getName()))
            throw new IllegalArgumentException("there is no property " + property.getName());
        if (isOfContext && node instanceof MethodReference method && !has(method.getName()))
            throw new IllegalArgumentException("there is no method " + method.getName());

        for (int i = 0; i < node.getChildCount(); i++) {
            boolean isElse = node instanceof Projection || node instanceof Selection;
            boolean isArgument = node instanceof MethodReference;
            boolean isFollower = node instanceof CompoundExpression && i > 0;
            if (isFollower) checkArguments(node.getChild(i));
            else check(node.getChild(i), (isOfContext || isArgument) && !isElse);
        }
    }

    /** What follows a dot belongs to what stands before it; the arguments there are expressions of their own. */
    private void checkArguments(SpelNode node) {
        for (int i = 0; i < node.getChildCount(); i++) check(node.getChild(i), node instanceof MethodReference);
    }

    private boolean has(String method) {
        return Arrays.stream(context.getMethods()).anyMatch(one -> one.getName().equalsIgnoreCase(method));
    }
}
