package taskassignor;

import org.apache.kafka.streams.processor.assignment.ApplicationState;

/** Python decides: set task.assignor.class to this class, and python.task.assignor.class to the name of a Python assignor. */
public final class PythonTaskAssignor extends BridgeAssignor {
    @Override Decision decide(final ApplicationState application, final State state) throws Exception {
        return ask(state, null, settings.rebalanceTimeoutMs).decision;
    }
}
