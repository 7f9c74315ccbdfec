package taskassignor;

import java.lang.management.ManagementFactory;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.ConcurrentHashMap;
import javax.management.JMException;
import javax.management.ObjectName;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/** The counters of an application; they outlive the assignors, of which Kafka makes one per rebalance. */
final class Metrics implements BridgeMXBean {
    private static final Logger log = LoggerFactory.getLogger("taskassignor");
    private static final Map<String, Metrics> ALL = new ConcurrentHashMap<>();

    private long rebalances;
    private long asked;
    private long answered;
    private long failed;
    private int failedInARow;
    private String lastFailure = "";
    private double lastMs;
    private double longestMs;
    private long compared;
    private long different;
    private long recorded;
    private long notRecorded;
    private final Map<String, Double> javaMeasures = new TreeMap<>();
    private final Map<String, Double> pythonMeasures = new TreeMap<>();

    private Metrics() { }

    static Metrics of(final String application) {
        return ALL.computeIfAbsent(application, name -> {
            final Metrics made = new Metrics();
            try {
                ManagementFactory.getPlatformMBeanServer()
                    .registerMBean(made, new ObjectName("task.assignor:type=bridge,application=" + ObjectName.quote(name)));
            } catch (final JMException | SecurityException failed) {
                log.warn("There are no metrics of the bridge: {}", failed.toString());
            }
            return made;
        });
    }

    synchronized void rebalance() {
        rebalances++;
    }

    synchronized void asking() {
        asked++;
    }

    synchronized void answer(final double ms) {
        answered++;
        failedInARow = 0;
        lastMs = ms;
        longestMs = Math.max(longestMs, ms);
    }

    /** Counts a failure; returns how many there were in a row, beside those of a start that takes long. */
    synchronized int failure(final String what, final boolean isStart) {
        failed++;
        lastFailure = what;
        failedInARow += isStart ? 0 : 1;
        return failedInARow;
    }

    synchronized void comparison(final boolean differs, final Map<String, double[]> measures) {
        compared++;
        different += differs ? 1 : 0;
        measures.forEach((name, values) -> {
            javaMeasures.merge(name, values[0], Double::sum);
            pythonMeasures.merge(name, values[1], Double::sum);
        });
    }

    synchronized void recording(final boolean done) {
        if (done) {
            recorded++;
        } else {
            notRecorded++;
        }
    }

    @Override public synchronized long getRebalances() {
        return rebalances;
    }

    @Override public synchronized long getAsked() {
        return asked;
    }

    @Override public synchronized long getAnswered() {
        return answered;
    }

    @Override public synchronized long getFailed() {
        return failed;
    }

    @Override public synchronized String getLastFailure() {
        return lastFailure;
    }

    @Override public synchronized double getLastAnswerMs() {
        return lastMs;
    }

    @Override public synchronized double getLongestAnswerMs() {
        return longestMs;
    }

    @Override public synchronized long getCompared() {
        return compared;
    }

    @Override public synchronized long getDifferent() {
        return different;
    }

    @Override public synchronized Map<String, Double> getJavaMeasures() {
        return new TreeMap<>(javaMeasures);
    }

    @Override public synchronized Map<String, Double> getPythonMeasures() {
        return new TreeMap<>(pythonMeasures);
    }

    @Override public synchronized long getRecorded() {
        return recorded;
    }

    @Override public synchronized long getNotRecorded() {
        return notRecorded;
    }
}
