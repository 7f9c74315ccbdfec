package taskassignor;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.Comparator;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.SortedMap;
import java.util.SortedSet;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.stream.IntStream;
import org.apache.kafka.streams.processor.TaskId;
import org.apache.kafka.streams.processor.assignment.ApplicationState;
import org.apache.kafka.streams.processor.assignment.AssignmentConfigs;
import org.apache.kafka.streams.processor.assignment.KafkaStreamsState;
import org.apache.kafka.streams.processor.assignment.ProcessId;
import org.apache.kafka.streams.processor.assignment.TaskInfo;
import org.apache.kafka.streams.processor.assignment.TaskTopicPartition;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * What Kafka says at a rebalance, with tasks and clients numbered in the order of their ids, and with sparse lags: a lag
 * that is not listed is the task's {@link #endOffsetSum}, which is what nearly all clients are behind by.
 */
final class State {
    static final long MISSING = Long.MIN_VALUE;
    /** Kafka's numbers for the lag of a running active task, and for one that is not known. */
    private static final long RUNNING = -2;
    private static final long UNKNOWN = -3;
    private static final Comparator<TaskTopicPartition> BY_TOPIC = Comparator
        .comparing((TaskTopicPartition one) -> one.topicPartition().topic()).thenComparing(one -> one.topicPartition().partition());
    private static final Logger log = LoggerFactory.getLogger("taskassignor");

    final long nowMs = System.currentTimeMillis();
    final AssignmentConfigs configs;
    final TaskId[] tasks;
    final TaskInfo[] infos;
    /** The topic partitions of each task, by topic and number: Kafka has them in no order. */
    final TaskTopicPartition[][] partitions;
    /** Has at least one changelog partition: who gets standbys, and who has lags. */
    final boolean[] hasChangelog;
    final long[] endOffsetSum;
    final ProcessId[] processes;
    final KafkaStreamsState[] clients;
    final boolean hasLags;
    /** Sparse lags, by client: task numbers, and for each its lag. */
    final int[][] lagTasks;
    final long[][] lags;
    private final List<SortedMap<String, SortedSet<TaskId>>> consumers = new ArrayList<>();

    State(final ApplicationState application) {
        configs = application.assignmentConfigs();
        infos = application.allTasks().values().toArray(new TaskInfo[0]);
        Arrays.sort(infos, Comparator.comparing(TaskInfo::id));
        tasks = Arrays.stream(infos).map(TaskInfo::id).toArray(TaskId[]::new);
        partitions = new TaskTopicPartition[tasks.length][];
        hasChangelog = new boolean[tasks.length];
        endOffsetSum = new long[tasks.length];
        for (int task = 0; task < tasks.length; task++) {
            endOffsetSum[task] = MISSING;
            partitions[task] = infos[task].topicPartitions().toArray(new TaskTopicPartition[0]);
            Arrays.sort(partitions[task], BY_TOPIC);
            for (final TaskTopicPartition partition : partitions[task]) {
                hasChangelog[task] |= partition.isChangelog();
            }
        }
        boolean computed = true;
        Map<ProcessId, KafkaStreamsState> states;
        try {
            states = application.kafkaStreamsStates(true);
        } catch (final RuntimeException failed) {
            log.warn("Kafka could not compute the lags, so the assignor gets none: {}", failed.toString());
            states = application.kafkaStreamsStates(false);
            computed = false;
        }
        hasLags = computed;
        processes = states.keySet().toArray(new ProcessId[0]);
        Arrays.sort(processes);
        clients = new KafkaStreamsState[processes.length];
        for (int client = 0; client < clients.length; client++) {
            clients[client] = states.get(processes[client]);
        }
        lagTasks = new int[clients.length][0];
        lags = new long[clients.length][0];
        if (computed) {
            readLags();
        }
    }

    private void readLags() {
        final int[] withLag = IntStream.range(0, tasks.length).filter(task -> hasChangelog[task]).toArray();
        final long[][] all = new long[clients.length][];
        for (int client = 0; client < clients.length; client++) {
            all[client] = lags(clients[client], withLag);
            for (int entry = 0; entry < withLag.length; entry++) {
                // -2 is a running active task: no sum of end offsets. All clients at -3: not known.
                if (all[client][entry] != RUNNING) {
                    endOffsetSum[withLag[entry]] = Math.max(endOffsetSum[withLag[entry]], all[client][entry]);
                }
            }
        }
        for (int client = 0; client < clients.length; client++) {
            final long[] ofClient = all[client];
            final int[] listed = IntStream.range(0, withLag.length)
                .filter(entry -> ofClient[entry] != endOffsetSum[withLag[entry]] && ofClient[entry] != MISSING).toArray();
            lagTasks[client] = Arrays.stream(listed).map(entry -> withLag[entry]).toArray();
            lags[client] = Arrays.stream(listed).mapToLong(entry -> ofClient[entry]).toArray();
        }
    }

    /** One by one: the map of all lags is made anew whenever Kafka is asked for it, and costs several times as much. */
    private long[] lags(final KafkaStreamsState client, final int[] withLag) {
        try {
            return Arrays.stream(withLag).mapToLong(task -> client.lagFor(tasks[task])).toArray();
        } catch (final IllegalStateException unknown) {
            final Map<TaskId, Long> known = client.statefulTasksToLagSums();
            return Arrays.stream(withLag).mapToLong(task -> known.getOrDefault(tasks[task], MISSING)).toArray();
        }
    }

    /** How many offsets a client is behind in a task; what is not known comes last. */
    long lag(final int client, final int task) {
        final int listed = Arrays.binarySearch(lagTasks[client], task);
        final long lag = listed >= 0 ? lags[client][listed] : endOffsetSum[task];
        return lag == UNKNOWN || lag == MISSING ? Long.MAX_VALUE : lag;
    }

    /** The number of a task; negative if it no longer exists. */
    int number(final TaskId task) {
        return Arrays.binarySearch(tasks, task);
    }

    /** Numbers values in the order in which they come; equal values once. */
    static final class Table<T> {
        final Map<T, Integer> numbers = new LinkedHashMap<>();

        int number(final T value) {
            final Integer known = numbers.putIfAbsent(value, numbers.size());
            return known == null ? numbers.size() - 1 : known;
        }

        Collection<T> values() {
            return numbers.keySet();
        }
    }

    /** The consumers of each client with their previous stateful tasks, by name. */
    synchronized List<SortedMap<String, SortedSet<TaskId>>> consumers() {
        if (consumers.isEmpty()) {
            for (final KafkaStreamsState client : clients) {
                final SortedMap<String, SortedSet<TaskId>> ofClient = new TreeMap<>();
                for (final String consumer : client.consumerClientIds()) {
                    // Kafka tells them sorted by lag, which takes it long, or not at all.
                    final Collection<TaskId> byLag = hasLags ? client.prevTasksByLag(consumer) : Set.of();
                    ofClient.put(consumer, new TreeSet<>(byLag));
                }
                consumers.add(ofClient);
            }
        }
        return consumers;
    }
}
