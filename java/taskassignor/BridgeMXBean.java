package taskassignor;

import java.util.Map;

/** What JMX shows of the bridge, as task.assignor:type=bridge,application=(application.id). */
public interface BridgeMXBean {
    /** Rebalances that this instance led. */
    long getRebalances();

    /** Times that Python was asked. */
    long getAsked();

    /** Times that Python gave a valid answer in time. */
    long getAnswered();

    /** Times that it did not; the rebalance then kept the assignment (or, in shadow mode, was not touched). */
    long getFailed();

    /** What went wrong the last time; empty: nothing yet. */
    String getLastFailure();

    /** Milliseconds that the last answer took, from the state to a checked assignment. */
    double getLastAnswerMs();

    /** The longest so far. */
    double getLongestAnswerMs();

    /** Shadow mode: decisions of Java and of Python that were compared. */
    long getCompared();

    /** Of these, decisions that differed. */
    long getDifferent();

    /** Sums of the measures of Java's decisions that were compared, by name (docs/cli.md, compare). */
    Map<String, Double> getJavaMeasures();

    /** The same of Python's. */
    Map<String, Double> getPythonMeasures();

    /** States that were recorded. */
    long getRecorded();

    /** States that could not be recorded. */
    long getNotRecorded();
}
