package io.ratelimitd.spring;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import org.springframework.expression.ParseException;
import org.springframework.expression.spel.SpelNode;
import org.springframework.expression.spel.ast.CompoundExpression;
import org.springframework.expression.spel.ast.Literal;
import org.springframework.expression.spel.ast.MethodReference;
import org.springframework.expression.spel.ast.OpMinus;
import org.springframework.expression.spel.ast.Projection;
import org.springframework.expression.spel.ast.PropertyOrFieldReference;
import org.springframework.expression.spel.ast.Selection;
import org.springframework.expression.spel.ast.VariableReference;
import org.springframework.expression.spel.standard.SpelExpression;
import org.springframework.expression.spel.standard.SpelExpressionParser;

/**
 * Parses expressions when the application starts, and refuses those that can only fail: a misspelt variable would be
 * null, and a key that is null is refused with every request.
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

    /** The same, with one more variable. */
    Expressions with(String variable) {
        Set<String> more = new HashSet<>(variables);
        more.add(variable);
        return new Expressions(context, more);
    }

    /**
     * @param where for the message: what the expression belongs to, and which option it is
     * @param type  what it gives; one that is written as a value is checked at once
     */
    SpelExpression parse(String text, String where, Class<?> type) {
        try {
            SpelExpression expression = (SpelExpression) PARSER.parseExpression(text);
            check(expression.getAST(), true);
            if (isValue(expression.getAST())) checkValue(expression.getValue(), type);
            return expression;
        } catch (ParseException | IllegalArgumentException e) {
            throw new InvalidLimitException(where, new IllegalArgumentException(
                    "the expression `" + text + "` is not valid: " + e.getMessage(), e));
        }
    }

    private static boolean isValue(SpelNode node) {
        return node instanceof Literal
                || node instanceof OpMinus && node.getChildCount() == 1 && node.getChild(0) instanceof Literal;
    }

    private static void checkValue(Object value, Class<?> type) {
        if (value == null) return;
        if (!type.isInstance(value))
            throw new IllegalArgumentException("it is " + (type == Boolean.class ? "not true or false"
                    : type == String.class ? "a number, not text" : "not a number"));
        if (value instanceof Number number && number.longValue() < 0) throw new IllegalArgumentException("it is negative");
    }

    /** Names of the path's variables that are written in it. */
    static List<String> pathNames(SpelExpression expression) {
        List<String> names = new ArrayList<>();
        collect(expression.getAST(), names);
        return names;
    }

    private static void collect(SpelNode node, List<String> names) {
        if (node instanceof MethodReference reference && reference.getName().equalsIgnoreCase("path")
                && node.getChildCount() == 1 && node.getChild(0) instanceof Literal literal)
            names.add(String.valueOf(literal.getLiteralValue().getValue()));
        for (int i = 0; i < node.getChildCount(); i++) collect(node.getChild(i), names);
    }

    /** Does it call this method of the context? */
    static boolean calls(SpelExpression expression, String method) {
        return expression != null && calls(expression.getAST(), method);
    }

    private static boolean calls(SpelNode node, String method) {
        if (node instanceof MethodReference reference && reference.getName().equalsIgnoreCase(method)) return true;
        for (int i = 0; i < node.getChildCount(); i++) if (calls(node.getChild(i), method)) return true;
        return false;
    }

    private void check(SpelNode node, boolean isOfContext) {
        if (node instanceof VariableReference && !variables.contains(node.toStringAST().substring(1)))
            throw new IllegalArgumentException("there is no variable " + node.toStringAST());
        if (isOfContext && node instanceof PropertyOrFieldReference property && !has("get" + property.getName())
                && !has("is" + property.getName()))
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
