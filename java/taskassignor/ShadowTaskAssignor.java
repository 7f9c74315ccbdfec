package taskassignor;

import java.util.Map;
import java.util.stream.Collectors;
import org.apache.kafka.streams.processor.assignment.ApplicationState;

/** Java decides as it would without the bridge; Python is asked afterwards, and how its answer differs is logged and counted. */
public final class ShadowTaskAssignor extends BridgeAssignor {
    @Override Decision decide(final ApplicationState application, final State state) throws Exception {
        final Decision java = ofJava(application, state);
        later("ask Python", () -> compare(state, java));
        return java;
    }

    private void compare(final State state, final Decision java) {
        try {
            final Wire.Answer python = ask(state, java, settings.timeoutMs);
            final boolean differs = differ(java, python.decision);
            metrics.comparison(differs, python.measures);
            final Map<String, double[]> measures = python.measures;
            log.info("Shadow: Java and {} {}. Java / Python: {}.", settings.assignor, differs ? "differ" : "agree", measures.keySet().stream()
                .map(name -> name + " " + shown(measures.get(name)[0]) + " / " + shown(measures.get(name)[1])).collect(Collectors.joining(", ")));
        } catch (final Exception failed) {
            final String what = what(failed);
            metrics.failure(what, false);
            log.warn("Shadow: Python has no assignment ({}). Java's is not touched by that.", what);
        }
    }

    private static String shown(final double value) {
        return value == Math.rint(value) ? Long.toString((long) value) : String.format("%.2f", value);
    }
}
