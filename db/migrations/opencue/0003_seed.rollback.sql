-- Takes the seed away again; refused by foreign keys while jobs or hosts use it.
delete from config where pk_config = '00000000-0000-0000-0000-0000000000cf';
delete from service where pk_service between '00000000-0000-0000-0000-000000000001'
                                         and '00000000-0000-0000-0000-000000000010';
delete from subscription where pk_subscription = '00000000-0000-0000-0000-0000000000c1';
delete from point where pk_point = '00000000-0000-0000-0000-0000000000b1';
delete from folder where pk_folder = '00000000-0000-0000-0000-0000000000e1';
delete from show_stats where pk_show = '00000000-0000-0000-0000-000000000051';
delete from show where pk_show = '00000000-0000-0000-0000-000000000051';
delete from dept where pk_dept = '00000000-0000-0000-0000-0000000000d1';
delete from alloc where pk_alloc = '00000000-0000-0000-0000-0000000000a1';
delete from facility where pk_facility = '00000000-0000-0000-0000-0000000000f1';
