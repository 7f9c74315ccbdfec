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
import java.util.TreeSet;
import java.util.UUID;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.streams.processor.TaskId;
import org.apache.kafka.streams.processor.assignment.ApplicationState;
import org.apache.kafka.streams.processor.assignment.AssignmentConfigs;
import org.apache.kafka.streams.processor.assignment.KafkaStreamsState;
import org.apache.kafka.streams.processor.assignment.ProcessId;
import org.apache.kafka.streams.processor.assignment.TaskAssignor;
import org.apache.kafka.streams.processor.assignment.TaskInfo;
import org.apache.kafka.streams.processor.assignment.TaskTopicPartition;
import org.apache.kafka.streams.state.HostInfo;

/**
 * How long assignors take for the same made-up state, one after the other in one JVM. Arguments: tasks, clients, rounds,
 * key=value settings, and the classes. One line per class: name, first call and median of the rest, in milliseconds.
 *
 * Every task has two source partitions and a changelog; one client is new; every client holds state of two in
 * clients + 1 tasks and is behind by the whole changelog of the others, as in a running application.
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
                final long start = System.nanoTime();
                assignor.assign(state);
                ms[round] = (System.nanoTime() - start) / 1e6;
            }
            final double first = ms[0];
            Arrays.sort(ms, Math.min(1, rounds - 1), rounds);
            System.out.printf("%s %.1f %.1f%n", argument, first, ms[(rounds + 1) / 2 - (rounds == 1 ? 1 : 0)]);
        }
        System.exit(0);
    }

    private static ApplicationState state(final int count, final int clients) {
        final Map<TaskId, TaskInfo> tasks = new HashMap<>();
        final TaskId[] ids = new TaskId[count];
        for (int task = 0; task < count; task++) {
            final int group = task % 10;
            final int partition = task / 10;
            ids[task] = new TaskId(group, partition);
            final Set<TaskTopicPartition> partitions = new HashSet<>();
            partitions.add(new Partition(new TopicPartition("left-" + group, partition), true));
            partitions.add(new Partition(new TopicPartition("right-" + group, partition), true));
            partitions.add(new Partition(new TopicPartition("bench-store-" + group + "-changelog", partition), false));
            tasks.put(ids[task], new Task(ids[task], Set.of("store-" + group), partitions));
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
            states.put(process, new Client(process, new TreeSet<>(List.of("consumer-" + client)), active, standby, lags));
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

    private static final class Partition implements TaskTopicPartition {
        private final TopicPartition partition;
        private final boolean source;

        Partition(final TopicPartition partition, final boolean source) {
            this.partition = partition;
            this.source = source;
        }

        @Override public TopicPartition topicPartition() {
            return partition;
        }

        @Override public boolean isSource() {
            return source;
        }

        @Override public boolean isChangelog() {
            return !source;
        }

        @Override public Optional<Set<String>> rackIds() {
            return Optional.empty();
        }
    }

    private static final class Task implements TaskInfo {
        private final TaskId id;
        private final Set<String> stores;
        private final Set<TaskTopicPartition> partitions;

        Task(final TaskId id, final Set<String> stores, final Set<TaskTopicPartition> partitions) {
            this.id = id;
            this.stores = stores;
            this.partitions = partitions;
        }

        @Override public TaskId id() {
            return id;
        }

        @Override public boolean isStateful() {
            return true;
        }

        @Override public Set<String> stateStoreNames() {
            return stores;
        }

        @Override public Set<TaskTopicPartition> topicPartitions() {
            return partitions;
        }
    }

    private static final class Client implements KafkaStreamsState {
        private final ProcessId process;
        private final SortedSet<String> consumers;
        private final SortedSet<TaskId> active;
        private final SortedSet<TaskId> standby;
        private final Map<TaskId, Long> lags;

        Client(final ProcessId process, final SortedSet<String> consumers, final SortedSet<TaskId> active,
            final SortedSet<TaskId> standby, final Map<TaskId, Long> lags) {
            this.process = process;
            this.consumers = consumers;
            this.active = active;
            this.standby = standby;
            this.lags = lags;
        }

        @Override public ProcessId processId() {
            return process;
        }

        @Override public int numProcessingThreads() {
            return 4;
        }

        @Override public SortedSet<String> consumerClientIds() {
            return consumers;
        }

        @Override public SortedSet<TaskId> previousActiveTasks() {
            return active;
        }

        @Override public SortedSet<TaskId> previousStandbyTasks() {
            return standby;
        }

        @Override public long lagFor(final TaskId task) {
            return lags.get(task);
        }

        @Override public SortedSet<TaskId> prevTasksByLag(final String consumer) {
            return active;
        }

        @Override public Map<TaskId, Long> statefulTasksToLagSums() {
            return lags;
        }

        @Override public Optional<HostInfo> hostInfo() {
            return Optional.empty();
        }

        @Override public Map<String, String> clientTags() {
            return Map.of();
        }

        @Override public Optional<String> rackId() {
            return Optional.empty();
        }
    }
}
