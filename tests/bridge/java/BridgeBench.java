import java.lang.management.ManagementFactory;
import java.util.Arrays;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.OptionalInt;
import java.util.Random;
import java.util.Set;
import java.util.SortedSet;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.UUID;
import javax.management.MBeanServer;
import javax.management.ObjectName;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.GroupAssignment;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.GroupSubscription;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.streams.processor.TaskId;
import org.apache.kafka.streams.processor.assignment.ApplicationState;
import org.apache.kafka.streams.processor.assignment.AssignmentConfigs;
import org.apache.kafka.streams.processor.assignment.KafkaStreamsState;
import org.apache.kafka.streams.processor.assignment.ProcessId;
import org.apache.kafka.streams.processor.assignment.TaskAssignor;
import org.apache.kafka.streams.processor.assignment.TaskAssignor.AssignmentError;
import org.apache.kafka.streams.processor.assignment.TaskInfo;
import org.apache.kafka.streams.processor.assignment.TaskTopicPartition;
import org.apache.kafka.streams.processor.internals.assignment.DefaultKafkaStreamsState;
import org.apache.kafka.streams.processor.internals.assignment.DefaultTaskInfo;
import org.apache.kafka.streams.processor.internals.assignment.DefaultTaskTopicPartition;

/**
 * How long assignors take for the same made-up state in Kafka's own objects, one after the other in one JVM. Arguments:
 * tasks, clients, rounds, key=value settings (interrupt: of this thread), and the classes. One line per class: name, first call, median and least of the rest, in milliseconds.
 *
 * Every task has two source partitions and a changelog; one client is new; every client holds state of two in
 * clients + 1 tasks and is behind by the whole changelog of the others, as in a running application. It ends when all
 * that is recorded is.
 */
public final class BridgeBench {
    private BridgeBench() { }

    public static void main(final String[] arguments) throws Exception {
        final int tasks = Integer.parseInt(arguments[0]);
        final int clients = Integer.parseInt(arguments[1]);
        final int rounds = Integer.parseInt(arguments[2]);
        final Map<String, Object> settings = new HashMap<>();
        settings.put("application.id", "bench");
        final ApplicationState state = state(tasks, clients);
        for (final String argument : Arrays.copyOfRange(arguments, 3, arguments.length)) {
            final int equals = argument.indexOf('=');
            if (equals >= 0) {
                settings.put(argument.substring(0, equals), argument.substring(equals + 1));
                continue;
            }
            final double[] ms = new double[rounds];
            for (int round = 0; round < rounds; round++) {
                final TaskAssignor assignor = (TaskAssignor) Class.forName(argument).getDeclaredConstructor().newInstance();
                assignor.configure(settings);
                if (settings.containsKey("interrupt")) {
                    Thread.currentThread().interrupt();
                }
                final long start = System.nanoTime();
                assignor.assign(state);
                ms[round] = (System.nanoTime() - start) / 1e6;
                assignor.onAssignmentComputed(new GroupAssignment(Map.of()), new GroupSubscription(Map.of()), AssignmentError.NONE);
                if (Thread.interrupted()) {
                    System.err.println("interrupted");
                }
            }
            final double first = ms[0];
            Arrays.sort(ms, Math.min(1, rounds - 1), rounds);
            System.out.printf("%s %.1f %.1f %.1f%n", argument, first, ms[(rounds + 1) / 2 - (rounds == 1 ? 1 : 0)], ms[Math.min(1, rounds - 1)]);
        }
        while (settings.containsKey("python.task.assignor.record.dir") && isRecording()) {
            Thread.sleep(10);
        }
        System.exit(0);
    }

    private static boolean isRecording() throws Exception {
        final MBeanServer server = ManagementFactory.getPlatformMBeanServer();
        long left = 0;
        for (final ObjectName name : server.queryNames(new ObjectName("task.assignor:*"), null)) {
            left += (Long) server.getAttribute(name, "Rebalances") - (Long) server.getAttribute(name, "Recorded")
                - (Long) server.getAttribute(name, "NotRecorded");
        }
        return left > 0;
    }

    private static ApplicationState state(final int count, final int clients) {
        final Map<TaskId, TaskInfo> tasks = new HashMap<>();
        final TaskId[] ids = new TaskId[count];
        for (int task = 0; task < count; task++) {
            final int group = task % 10;
            final int partition = task / 10;
            ids[task] = new TaskId(group, partition);
            final Set<TaskTopicPartition> partitions = new HashSet<>();
            partitions.add(partition("left-" + group, partition, true));
            partitions.add(partition("right-" + group, partition, true));
            partitions.add(partition("bench-store-" + group + "-changelog", partition, false));
            tasks.put(ids[task], new DefaultTaskInfo(ids[task], true, Set.of("store-" + group), partitions));
        }
        final Random random = new Random(1);
        final long[] ends = random.longs(count, 0, 1_000_000).toArray();
        final Map<ProcessId, KafkaStreamsState> states = new HashMap<>();
        for (int client = 0; client < clients; client++) {
            final SortedSet<TaskId> active = new TreeSet<>();
            final SortedSet<TaskId> standby = new TreeSet<>();
            final Map<TaskId, Long> lags = new HashMap<>();
            for (int task = 0; task < count; task++) {
                final int owner = task % (clients + 1);
                lags.put(ids[task], ends[task]);
                if (client > 0 && owner == client) {
                    active.add(ids[task]);
                    lags.put(ids[task], -2L);
                } else if (client > 0 && (owner + 1) % (clients + 1) == client) {
                    standby.add(ids[task]);
                    lags.put(ids[task], (long) random.nextInt(100));
                }
            }
            final ProcessId process = new ProcessId(new UUID(random.nextLong(), random.nextLong()));
            states.put(process, new DefaultKafkaStreamsState(process, 4, Map.of(), active, standby,
                new TreeMap<>(Map.of("consumer-" + client, active)), Optional.empty(), Optional.of(lags), Optional.empty()));
        }
        final AssignmentConfigs configs =
            new AssignmentConfigs(10_000L, 2, 1, 600_000L, List.of(), OptionalInt.empty(), OptionalInt.empty(), "none");
        return new ApplicationState() {
            @Override public Map<ProcessId, KafkaStreamsState> kafkaStreamsStates(final boolean computeTaskLags) {
                return states;
            }

            @Override public AssignmentConfigs assignmentConfigs() {
                return configs;
            }

            @Override public Map<TaskId, TaskInfo> allTasks() {
                return tasks;
            }
        };
    }

    private static DefaultTaskTopicPartition partition(final String topic, final int partition, final boolean isSource) {
        return new DefaultTaskTopicPartition(new TopicPartition(topic, partition), isSource, !isSource, () -> { });
    }
}
