package taskassignor;

import java.util.Arrays;
import java.util.Collection;
import java.util.Comparator;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
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
    private final Map<TaskId, Integer> numbers;

    State(final ApplicationState application) {
        configs = application.assignmentConfigs();
        final Map<TaskId, TaskInfo> all = application.allTasks();
        tasks = all.keySet().toArray(new TaskId[0]);
        Arrays.sort(tasks);
        infos = new TaskInfo[tasks.length];
        partitions = new TaskTopicPartition[tasks.length][];
        hasChangelog = new boolean[tasks.length];
        endOffsetSum = new long[tasks.length];
        numbers = new HashMap<>(tasks.length * 2);
        for (int task = 0; task < tasks.length; task++) {
            infos[task] = all.get(tasks[task]);
            numbers.put(tasks[task], task);
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
        final int[][] given = new int[clients.length][];
        final long[][] values = new long[clients.length][];
        for (int client = 0; client < clients.length; client++) {
            final Map<TaskId, Long> ofClient = clients[client].statefulTasksToLagSums();
            given[client] = new int[ofClient.size()];
            values[client] = new long[ofClient.size()];
            int count = 0;
            for (final Map.Entry<TaskId, Long> entry : ofClient.entrySet()) {
                final Integer task = numbers.get(entry.getKey());
                if (task == null) {
                    continue;
                }
                given[client][count] = task;
                values[client][count++] = entry.getValue();
                // -2 is a running active task: no sum of end offsets. All clients at -3: not known.
                endOffsetSum[task] = Math.max(endOffsetSum[task], entry.getValue() == -2 ? MISSING : entry.getValue());
            }
            given[client] = Arrays.copyOf(given[client], count);
        }
        for (int client = 0; client < clients.length; client++) {
            int count = 0;
            for (int entry = 0; entry < given[client].length; entry++) {
                if (values[client][entry] != endOffsetSum[given[client][entry]]) {
                    given[client][count] = given[client][entry];
                    values[client][count++] = values[client][entry];
                }
            }
            lagTasks[client] = Arrays.copyOf(given[client], count);
            lags[client] = Arrays.copyOf(values[client], count);
        }
    }

    /** The number of a task, or -1 if it no longer exists. */
    int number(final TaskId task) {
        final Integer number = numbers.get(task);
        return number == null ? -1 : number;
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

    /** The consumers of a client with their previous stateful tasks, by name. */
    TreeMap<String, Set<TaskId>> consumers(final int client) {
        final TreeMap<String, Set<TaskId>> consumers = new TreeMap<>();
        for (final String consumer : clients[client].consumerClientIds()) {
            // Kafka tells them sorted by lag, or not at all.
            consumers.put(consumer, hasLags ? new TreeSet<>(clients[client].prevTasksByLag(consumer)) : Set.of());
        }
        return consumers;
    }
}
